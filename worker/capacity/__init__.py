"""What a deployment needs: costs as laws fitted to measurements (`make capacity`), and what follows for a demand."""
