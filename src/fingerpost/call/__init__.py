"""The only place that acts on the world: names, arguments, policy, approval, execution, digest."""
