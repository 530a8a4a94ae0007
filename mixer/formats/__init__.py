"""What is not Parquet becomes rows: JSON lines, JSON arrays, CSV, text, Arrow, Hugging Face folders, WebDataset tars.

`finding` says which files a path stands for and what kind they are; `stage.RowsStage` makes rows of them. Values are
those of the file or there is an error; README.md has the table of what is taken, refused, skipped or put aside.
"""
