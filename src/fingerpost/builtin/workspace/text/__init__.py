"""What is in a file, as text: encodings, line ends, edits and differences. Nothing here touches a disk."""
