"""What is deployed with: manifests for Kubernetes."""
