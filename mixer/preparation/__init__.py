"""What makes a dataset seekable before it is mixed: stages that read inputs and give the parts of a prepared copy."""
