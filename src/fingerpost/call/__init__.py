"""Tool calls: names, arguments, policy, approval, execution, digest. Only this package runs tools."""
