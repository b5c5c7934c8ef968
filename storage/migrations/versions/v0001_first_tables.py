"""The first tables.

Written out rather than taken from `storage.models`: this is what the tables were on the day, whatever they become.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _number(name: str, nullable: bool = True) -> sa.Column[float]:
    return sa.Column(name, sa.Double(53), nullable=nullable)


def _word(name: str, length: int, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=nullable)


def _text(name: str, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _count(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=nullable)


def _yes_no(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def _link(name: str, to: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), sa.ForeignKey(f"{to}.id"), nullable=nullable)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), primary_key=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "environments",
        _id(),
        _word("fingerprint", 64),
        _word("host", 255),
        _text("details"),
        _number("recorded_at", nullable=False),
        sa.UniqueConstraint("fingerprint"),
    )
    op.create_table(
        "configurations",
        _id(),
        _word("identity", 64),
        _word("resolved_identity", 64),
        _text("asked"),
        _text("resolved", nullable=True),
        sa.UniqueConstraint("identity", "resolved_identity", name="uq_configurations_identity"),
    )
    op.create_index("ix_configurations_resolved_identity", "configurations", ["resolved_identity"])
    op.create_table(
        "searches",
        _id(),
        _word("study_name", 512),
        _word("space", 255),
        _text("space_yaml"),
        _text("model"),
        _link("baseline_configuration_id", "configurations", nullable=True),
        _text("plan"),
        _number("created_at", nullable=False),
        _yes_no("rehearsal"),
        sa.UniqueConstraint("study_name"),
    )
    op.create_table(
        "launches",
        _id(),
        _word("uid", 32),
        _word("study_name", 512),
        _count("trial_number", nullable=True),
        _word("purpose", 32),
        _link("configuration_id", "configurations"),
        _link("environment_id", "environments", nullable=True),
        _word("host", 255),
        _count("owner_pid"),
        _word("owner_incarnation", 128),
        _count("pid", nullable=True),
        _text("command"),
        _text("log_path", nullable=True),
        _number("started_at", nullable=False),
        _number("ready_at"),
        _number("ended_at"),
        _word("outcome", 32),
        _word("failure_rank", 64, nullable=True),
        _word("failure_phase", 64, nullable=True),
        _text("failure_cause", nullable=True),
        _word("failure_blame", 32, nullable=True),
        _text("failure_remedy", nullable=True),
        _text("failure_evidence", nullable=True),
        _text("server_info", nullable=True),
        _text("teardown", nullable=True),
        _yes_no("rehearsal"),
        sa.UniqueConstraint("uid"),
    )
    op.create_index("ix_launches_study", "launches", ["study_name", "trial_number"])
    op.create_index("ix_launches_outcome", "launches", ["outcome", "host"])
    op.create_index("ix_launches_configuration_id", "launches", ["configuration_id"])
    op.create_table(
        "phases",
        _id(),
        _link("launch_id", "launches"),
        _word("rank", 64),
        _word("name", 64),
        _number("started_at"),
        _number("elapsed_s"),
        _number("memory_used_gb"),
        _number("memory_left_gb"),
        _number("progress"),
        _yes_no("done"),
        sa.UniqueConstraint("launch_id", "rank", "name", name="uq_phases_launch_rank_name"),
    )
    quantities = ("ttft_ms", "itl_ms", "tpot_ms", "latency_ms")
    op.create_table(
        "measurements",
        _id(),
        _word("uid", 32),
        _link("launch_id", "launches"),
        _word("level", 64),
        _count("concurrency"),
        _count("prompt_tokens", nullable=True),
        _count("output_tokens"),
        _count("requests"),
        _count("repeat"),
        _number("started_at", nullable=False),
        _number("duration_s"),
        _count("completed"),
        _count("failed"),
        _number("output_throughput"),
        _number("request_throughput"),
        *(_number(f"{quantity}_{figure}") for quantity in quantities for figure in ("mean", "p50", "p90", "p99")),
        _number("acceptance_length"),
        _number("acceptance_rate"),
        _number("warm_up_s"),
        _yes_no("steady"),
        _number("pcie_bytes_per_token"),
        _number("nvlink_bytes_per_token"),
        sa.UniqueConstraint("uid"),
    )
    op.create_index("ix_measurements_launch", "measurements", ["launch_id", "level"])
    op.create_table(
        "measurement_details",
        sa.Column("measurement_id", sa.Integer(), sa.ForeignKey("measurements.id"), primary_key=True),
        _text("detail"),
        _count("sample_count"),
        sa.Column("samples", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "artifacts",
        _id(),
        _word("uid", 32),
        _word("study_name", 512, nullable=True),
        _link("launch_id", "launches", nullable=True),
        _word("kind", 64),
        _text("filename"),
        _text("path"),
        _word("sha256", 64),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        _number("recorded_at", nullable=False),
        sa.UniqueConstraint("uid"),
    )
    op.create_index("ix_artifacts_study_name", "artifacts", ["study_name"])
    op.create_index("ix_artifacts_launch_id", "artifacts", ["launch_id"])


def downgrade() -> None:
    """Drop the tables, those that point at others first."""
    for table in (
        "artifacts",
        "measurement_details",
        "measurements",
        "phases",
        "launches",
        "searches",
        "configurations",
        "environments",
    ):
        op.drop_table(table)
