"""`terminal_operations`: commands of the folder, without a shell, within limits, leaving nothing behind."""
