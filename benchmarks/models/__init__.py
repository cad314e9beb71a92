"""The table of models: stator beside eager, torch.compile and OpenVINO, in three modes."""
