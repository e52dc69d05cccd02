"""From a model to its layer table."""

from __future__ import annotations

from nest_opt.estimate.table import LayerTable, table_of_layers
from nest_opt.problem import ConfigModel, Problem


def layer_table(problem: Problem) -> LayerTable:
    """The layer table of a problem's model, over its templates and microbatches.

    Raises :class:`nest_opt.errors.InputError` if the model cannot be read or estimated.
    """
    templates, microbatches = problem.search.templates(), problem.search.microbatch
    if isinstance(problem.model, ConfigModel):
        from nest_opt.estimate.profile import with_profile
        from nest_opt.estimate.transformer import table_of_config

        device = problem.model.device or problem.cluster.device
        table = table_of_config(problem.model, device, templates, microbatches)
        return with_profile(table, problem.model)
    return table_of_layers(problem.model, templates, microbatches)
