"""The process kubelet: fake nodes whose pods really run, as processes in namespaces of this machine.

One process plays, for every node that carries its label, the kubelet, the network plugin, the cluster's DNS and
kube-proxy. What it decides (phases, restarts, probes, environments, volumes, events) is pure and stands in modules that
do no I/O; `pod`, `container`, `node` and what they use do it.
"""
