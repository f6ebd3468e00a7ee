import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from grpodoctor.errors import DataError
from grpodoctor.measure import logits as logits_module
from grpodoctor.measure.logits import entropy_and_logprobs, token_logprobs


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _reference(logits_NV: Tensor, ids_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Entropy and log-probability in float64, by the textbook."""
    log_p = (logits_NV.double() / temperature).log_softmax(-1)
    terms = torch.where(log_p.isfinite(), log_p.exp() * log_p, 0.0)
    return -terms.sum(-1), log_p.gather(1, ids_N[:, None])[:, 0]


def test_agrees_with_the_vectors(vectors):
    expected = vectors["entropy"]
    logits = torch.tensor(expected["logits"])
    ids = torch.tensor([0, 3])
    entropy, logprobs = entropy_and_logprobs(logits, ids)
    assert entropy.tolist() == pytest.approx(expected["nats"], abs=1e-6)
    assert logprobs[1].item() == pytest.approx(-math.log(4))
    entropy, _ = entropy_and_logprobs(logits, ids, temperature=0.5)
    assert entropy.tolist() == pytest.approx(expected["nats_at_temperature_half"], abs=1e-6)
    logits.requires_grad_()
    _, entropy = token_logprobs(logits, ids, with_entropy=True)
    entropy.sum().backward()
    assert torch.allclose(logits.grad, torch.tensor(expected["gradient"]), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize(("rows", "vocabulary"), [(5, 151_936), (9000, 23), (700, 256), (3, 1)])
def test_error_is_under_a_ten_thousandth_of_a_nat(dtype, temperature, rows, vocabulary):
    logits = (torch.randn(rows, vocabulary) * 4).to(dtype)
    ids = torch.randint(0, vocabulary, (rows,))
    entropy, logprobs = entropy_and_logprobs(logits, ids, temperature)
    entropy_64, logprobs_64 = _reference(logits, ids, temperature)
    assert entropy.dtype == logprobs.dtype == torch.float32
    assert (entropy - entropy_64).abs().max() < 1e-4
    assert (logprobs - logprobs_64).abs().max() < 1e-4


def test_a_large_common_offset_costs_no_precision():
    logits = torch.randn(20, 5000) + 3000.0
    ids = torch.randint(0, 5000, (20,))
    entropy, _ = entropy_and_logprobs(logits, ids)
    assert (entropy - _reference(logits, ids, 1.0)[0]).abs().max() < 1e-4


def test_a_peaked_distribution_has_no_negative_entropy_to_speak_of():
    logits = torch.full((4, 1000), -60.0)
    logits[:, 7] = 40.0
    entropy, logprobs = entropy_and_logprobs(logits, torch.tensor([7, 7, 7, 8]))
    assert entropy.abs().max() < 1e-6
    assert logprobs.tolist() == pytest.approx([0, 0, 0, -100], abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_masked_vocabulary_counts_only_unmasked_tokens(dtype):
    logits = torch.randn(6, 400).to(dtype)
    masked = logits.clone()
    masked[:, 10:] = -torch.inf
    ids = torch.tensor([0, 1, 2, 3, 4, 200])
    entropy, logprobs = entropy_and_logprobs(masked, ids)
    alone, alone_logprobs = entropy_and_logprobs(logits[:, :10].contiguous(), ids.clamp(max=9))
    assert torch.allclose(entropy, alone, atol=1e-6)
    assert torch.allclose(logprobs[:5], alone_logprobs[:5], atol=1e-6)
    assert logprobs[5] == -torch.inf


def test_a_nonfinite_row_does_not_affect_the_others():
    logits = torch.randn(4, 50)
    logits[1, 3] = torch.nan
    logits[2] = -torch.inf
    entropy, logprobs = entropy_and_logprobs(logits, torch.zeros(4, dtype=torch.long))
    assert entropy.isfinite().tolist() == logprobs.isfinite().tolist() == [True, False, False, True]


class _LargestStorage(TorchDispatchMode):
    """Bytes of every storage that an operation brings into the world."""

    def __init__(self, known: Tensor) -> None:
        super().__init__()
        self.known = known.untyped_storage().data_ptr()
        self.made: dict[int, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else None
            if storage is not None and storage.data_ptr() != self.known:
                self.made[storage.data_ptr()] = storage.nbytes()
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_buffer_of_the_logits_size_is_made_but_their_gradient(dtype):
    rows, vocabulary = 24, 151_936
    logits = torch.randn(rows, vocabulary).to(dtype).requires_grad_()
    ids = torch.randint(0, vocabulary, (rows,))
    small = 4 * vocabulary + 4096
    with _LargestStorage(logits) as forward:
        entropy_and_logprobs(logits, ids, 0.8)
        logprobs, entropy = token_logprobs(logits, ids, 0.8, with_entropy=True)
    assert max(forward.made.values()) <= small
    with _LargestStorage(logits) as backward:
        (logprobs + entropy).sum().backward()
    large = [size for size in backward.made.values() if size > small]
    assert large == [logits.numel() * logits.element_size()]


def test_rows_come_out_the_same_however_they_are_cut(monkeypatch):
    logits, ids = torch.randn(37, 300), torch.randint(0, 300, (37,))
    whole = entropy_and_logprobs(logits, ids)
    monkeypatch.setitem(logits_module._BUFFER_ELEMENTS, "cpu", 1000)
    cut = entropy_and_logprobs(logits, ids)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(whole, cut, strict=True))


def test_rows_of_a_larger_tensor_are_read_in_place():
    wide = torch.randn(12, 200)
    view = wide[::2, 50:150]
    ids = torch.randint(0, 100, (6,))
    entropy, logprobs = entropy_and_logprobs(view, ids)
    expected = entropy_and_logprobs(view.contiguous(), ids)
    assert torch.equal(entropy, expected[0])
    assert torch.equal(logprobs, expected[1])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("wanted", ["logprobs", "entropy", "both"])
def test_gradients_are_those_of_the_textbook(temperature, wanted, monkeypatch):
    monkeypatch.setitem(logits_module._BUFFER_ELEMENTS, "cpu", 200)
    logits, ids = torch.randn(11, 60, requires_grad=True), torch.randint(0, 60, (11,))
    of_logprobs = torch.randn(11) * (wanted != "entropy")
    of_entropy = torch.randn(11) * (wanted != "logprobs")

    logprobs, entropy = token_logprobs(logits, ids, temperature, with_entropy=True)
    used = {"logprobs": (logprobs * of_logprobs).sum(), "entropy": (entropy * of_entropy).sum()}
    ours = torch.autograd.grad(used[wanted] if wanted in used else sum(used.values()), logits)[0]

    entropy_64, logprobs_64 = _reference(logits, ids, temperature)
    total = (logprobs_64 * of_logprobs).sum() + (entropy_64 * of_entropy).sum()
    expected = torch.autograd.grad(total, logits)[0]
    assert torch.allclose(ours, expected, atol=1e-6)


def test_gradients_of_coarse_logits_have_their_dtype():
    logits = torch.randn(5, 90).bfloat16().requires_grad_()
    ids = torch.randint(0, 90, (5,))
    token_logprobs(logits, ids).sum().backward()
    exact = logits.detach().double().requires_grad_()
    exact.log_softmax(-1).gather(1, ids[:, None]).sum().backward()
    assert logits.grad.dtype == torch.bfloat16
    assert torch.allclose(logits.grad.double(), exact.grad, atol=4e-3)


def test_a_masked_token_gets_no_gradient():
    logits = torch.randn(5, 40)
    logits[:, 8:] = -torch.inf
    logits.requires_grad_()
    logprobs, entropy = token_logprobs(logits, torch.arange(5), with_entropy=True)
    (logprobs + entropy).sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad[:, 8:] == 0).all()
    assert (logits.grad[:, :8] != 0).all()


def test_both_functions_give_the_same_numbers():
    logits, ids = torch.randn(30, 77), torch.randint(0, 77, (30,))
    entropy, logprobs = entropy_and_logprobs(logits, ids, 0.9)
    both = token_logprobs(logits, ids, 0.9, with_entropy=True)
    assert torch.equal(logprobs, both[0])
    assert torch.equal(entropy, both[1])
    assert torch.equal(logprobs, token_logprobs(logits, ids, 0.9))


def test_no_rows_give_empty_results():
    logits = torch.zeros(0, 10, requires_grad=True)
    ids = torch.zeros(0, dtype=torch.long)
    assert [len(each) for each in entropy_and_logprobs(logits, ids)] == [0, 0]
    token_logprobs(logits, ids).sum().backward()
    assert logits.grad.shape == (0, 10)


@pytest.mark.parametrize(
    ("shape", "ids", "temperature"), [((3, 4), 2, 1.0), ((3, 4, 5), 3, 1.0), ((3, 4), 3, 0.0)]
)
def test_shapes_that_do_not_fit_are_refused(shape, ids, temperature):
    arguments = torch.zeros(shape), torch.zeros(ids, dtype=torch.long), temperature
    for function in (entropy_and_logprobs, token_logprobs):
        with pytest.raises(DataError):
            function(*arguments)
