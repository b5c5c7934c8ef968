"""PCIe: topology, traffic counters, the all-reduce probe, the traffic model, and what a host is."""
