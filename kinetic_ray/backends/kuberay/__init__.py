"""The backend of clusters: KubeRay on Kubernetes. Only here may the client of Kubernetes be imported."""
