"""Pictures of embeddings, PNG or SVG, for those who have no plotting library; made by workers (extra `pictures`)."""
