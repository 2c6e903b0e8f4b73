"""All claims of the table, in its order."""

from __future__ import annotations

from reproduction import claims_training, claims_uncertainty, claims_use

CLAIMS = (*claims_training.CLAIMS, *claims_uncertainty.CLAIMS, *claims_use.CLAIMS)
