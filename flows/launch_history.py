"""How long the launches of this study took, as the store remembers them."""

from __future__ import annotations

from flows.budget import LaunchTimes, launch_times
from flows.opening import Search


def times_of(search: Search) -> LaunchTimes:
    """Times of every launch of the study in this environment that was not refused or cut short."""
    return launch_times(
        [
            (launch.configuration.identity(), launch.started_at, launch.ended_at)
            for launch in search.store.launches(search.study_name, outcomes=("measured", "pruned", "failed"))
            if launch.environment_id == search.environment_id
        ]
    )
