"""The shipped tables: CSV files, each row with its source and date."""
