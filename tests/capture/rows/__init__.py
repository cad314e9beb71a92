"""Changes between two calls, as rows: what `test_soundness_rows.py` runs."""
