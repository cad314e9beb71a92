"""What every other room stands on: options, errors, log, disk store, artifacts.

Standard library only: nothing here imports torch or another room of stator, so any module may import any of these.
"""
