"""Intent calibration: answer rankers whose probabilities can be trusted.

Importing the package loads none of the heavy libraries (torch, ray, deepspeed, optuna, plotly).
"""

__version__ = "0.1.0"
