"""What every other package stands on: options, errors, log, disk store, artifacts.

Standard library only: nothing here imports torch or another package of stator, so any module may import any of these.
"""
