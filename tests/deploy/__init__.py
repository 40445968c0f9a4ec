"""Tests of the deployment files: docker-compose, Dockerfile, Kubernetes manifests."""
