"""What stator makes of every operator of PyTorch's own operator database: `python -m stator.coverage`.

`database.py` gives the operators and their samples, `compare.py` says whether two runs show the same, `judge.py` gives
the verdict on a sample, `workers.py` runs many in processes that may die, `report.py` writes the page, `record.py`
the record that later runs are held to.
"""
