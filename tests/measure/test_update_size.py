import math

import pytest
import torch

from grpodoctor.errors import ModelError
from grpodoctor.measure.weights.update_size import WeightSnapshot
from grpodoctor.vocabulary.values import NotApplicable, Rate, scalar


def _model(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).to(dtype)


def test_the_norm_ratio_is_global_and_every_weight_is_counted():
    model = _model()
    before = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    snapshot = WeightSnapshot.take(model)
    with torch.no_grad():
        model[0].weight.mul_(1.01)
    after = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    readings = snapshot.change(model)
    assert scalar(readings["optimizer/update_norm_ratio"]) == pytest.approx(
        float((after - before).norm() / before.norm())
    )
    assert readings["optimizer/changed_weight_rate"] == Rate(
        int((after != before).sum()), before.numel()
    )


def test_steps_below_the_rounding_of_bfloat16_are_seen_to_vanish():
    model = _model(torch.bfloat16)
    snapshot = WeightSnapshot.take(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(weight * 1e-4)
    readings = snapshot.change(model)
    assert readings["optimizer/changed_weight_rate"].value == 0
    assert scalar(readings["optimizer/update_norm_ratio"]) == 0


def test_frozen_weights_are_excluded():
    model = _model()
    model[1].requires_grad_(False)
    readings = WeightSnapshot.take(model).change(model)
    assert readings["optimizer/changed_weight_rate"] == Rate(0, 8 * 16 + 16)


def test_taking_a_snapshot_changes_nothing_and_follows_nothing():
    model = _model()
    snapshot = WeightSnapshot.take(model)
    with torch.no_grad():
        model[0].bias.fill_(math.pi)
    assert not any(torch.equal(snapshot.weights["0.bias"], b) for b in (model[0].bias,))
    assert all(not weight.requires_grad for weight in snapshot.weights.values())


def test_another_model_is_refused_by_the_name_of_the_weight():
    snapshot = WeightSnapshot.take(_model())
    with pytest.raises(ModelError, match=r"1\.bias"):
        snapshot.change(torch.nn.Sequential(torch.nn.Linear(8, 16)))


def test_a_model_of_zeros_has_no_ratio():
    model = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    readings = WeightSnapshot.take(model).change(model)
    assert isinstance(readings["optimizer/update_norm_ratio"], NotApplicable)
