"""`file_operations`: one tool, sixteen operations on the files of the folder."""
