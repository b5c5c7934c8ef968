"""What is remembered: one database with Optuna's study and our records, and a folder of artifacts beside it."""

from storage.errors import StorageError
from storage.records import (
    ArtifactRecord,
    ConfigurationRecord,
    EnvironmentRecord,
    LaunchRecord,
    LevelResult,
    MeasurementRecord,
    Outcome,
    PhaseRecord,
    Purpose,
    SearchRecord,
)
from storage.redaction import redact
from storage.store import Store

__all__ = [
    "ArtifactRecord",
    "ConfigurationRecord",
    "EnvironmentRecord",
    "LaunchRecord",
    "LevelResult",
    "MeasurementRecord",
    "Outcome",
    "PhaseRecord",
    "Purpose",
    "SearchRecord",
    "StorageError",
    "Store",
    "redact",
]
