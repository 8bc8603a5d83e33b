"""Answers of an engine's process are validated; errors name the path of the wrong field."""

import json
from collections.abc import Iterator, Set
from typing import Any

import pytest

from scenarios.sampling import Output
from scenarios.spec import Value
from workers.record.engine_records import OpenedValues
from workers.record.evidence import Site
from workers.targets.child.answers import Failed, Greeting, Harmed, Nothing, Reported, Stepped, answer_in
from workers.targets.child.messages import MessageError

_SITE = {"function": "forward", "file": "model.py", "line": 1}
_SIDE = {"lane": "main", "how": "read", "op": "copy", "step": 2, "replaced": None, "site": _SITE, "callers": [_SITE]}
_ORDER = {"first": _SIDE, "second": _SIDE, "memory": "rows", "reused_as": "more", "allocated": _SITE}
# Keys of evidence that have a default value.
_OPTIONAL = {"how", "replaced", "site", "file", "line", "reused_as", "allocated"}
_OPTIONAL |= {"task", "what", "given", "policy", "error", "callers", "writers", "of"}
# For each point, the keys that have a default value, because not every engine has or shows them.
_OPTIONAL_AT = {
    "opened": set(OpenedValues.model_fields) - {"vocab_size", "block_size", "state_sizes"},
    "scheduled": {"follows", "shared", "windows", "taken", "lookups", "num_tokens", "told"},
    "inputs": {"bounds", "copied", "states", "windows", "left"},
    "drafting": {"blocks", "bounds", "behind", "hidden_states"},
    "context": {"hidden_states"},
    "margins": {"draft_logits"},
    "hidden_states": {"draft_pass"},
}
_SEEN: dict[str, dict[str, Any]] = {
    "opened": {
        "vocab_size": 32,
        "block_size": 4,
        "state_sizes": [4],
        "max_model_len": 64,
        "draft_shift": 1,
        "chunk_ends_known": False,
        "mask_token": 3,
        "drafts_max": 2,
        "lookups_filled_up": True,
        "windows": [[4, 3]],
        "hash_ahead": 1,
        "greedy_is_top_1": True,
        "receives_hidden_states": True,
        "keeps_draft_logits": True,
    },
    "scheduled": {
        "scheduled_computed": [0],
        "planned_drafts": [0],
        "begun": [[0, [1, 2]]],
        "blocks": [[0, [3]]],
        "states": [[0, [[4]]]],
        "follows": True,
        "shared": [[0, 2]],
        "windows": [[0, [[0, 5]]]],
        "taken": [3],
        "lookups": [[0, 1]],
        "num_tokens": [2],
        "told": [[3]],
    },
    "inputs": {
        "input_ids": [1, 2],
        "positions": [0, 1],
        "slots": [12, 13],
        "starts": [0, 2],
        "seq_lens": [2],
        "tables": [[3]],
        "drafts": [0],
        "bounds": [4],
        "copied": [1],
        "states": [{"states": [4], "goes_on": [True], "kept": [1], "whole": [False], "left": [[4, 5]]}],
        "windows": [{"slots": [8, 9], "tables": [[2]]}],
    },
    "context": {"positions": [0], "slots": [4], "hidden_states": [8]},
    "drafting": {
        "index": 0,
        "input_ids": [1],
        "positions": [0],
        "slots": [4],
        "starts": [0, 1],
        "seq_lens": [1],
        "tables": [[1]],
        "bounds": [5],
        "behind": 1,
        "blocks": [[0, [1]]],
        "hidden_states": [8],
    },
    "branches": {"index": 1, "parents": [[0]], "hidden_states": [[8]]},
    "hidden_states": {"draft_pass": 0, "hidden_states": [8]},
    "draft_logits": {"normalizers": [[9]], "acceptance": [[9]]},
    "margins": {"margins": [0.5], "draft_logits": [9]},
    "proposed": {"proposed": [[7]]},
    "corrected": {"mirror_computed": [2]},
    "processed": {"sampled": [[5]]},
    "counted": {"counted": [1, 2, 1]},
    "controlled": {"what": "weights", "version": 1, "tokens": [0]},
    "drained": {"leaks": {"blocks": 1}},
    "copied": {"blocks": [[3, 4]]},
    "zeroed": {"blocks": [3, 4]},
    "offered": {"prompt": 4, "tokens": 9, "found": 0, "offered": [0, 1]},
}
SEEN = [
    {"point": point, "step": 0, "requests": [0], "values": values, "of": "engine", "writers": {"slots": [_SIDE]}}
    for point, values in _SEEN.items()
]
_DELIVERY = {
    "request": "a",
    "output": json.loads(json.dumps(Output((1,), "length", (1, -0.5), (2, -1.5)))),
    "is_late": True,
}
ANSWERS: dict[type[Value], dict[str, Any]] = {
    Greeting: {"version": "1"},
    Nothing: {},
    Stepped: {"deliveries": [_DELIVERY], "drained": False, "probes": {"admit": 1}, "seen": SEEN},
    Reported: {
        "races": [{"order": _ORDER, "count": 1}],
        "counts": {"tasks": 1},
        "seen": SEEN,
    },
    Harmed: {"harm": {"kind": "masked", "task": _SIDE, "what": "reads", "given": _SIDE, "policy": "lazy", "error": ""}},
}
# Values of types that no field, and no item of a field, has.
WRONG = ({"wrong": "x"}, [["x", "x"]], 1.5, True, None)
# Exceptions: values in WRONG that these fields, or their items, accept.
ALSO = {
    # A finish reason may be missing, and logprobs are floats.
    "output": (None, 1.5),
    "margins": (1.5,),
    **dict.fromkeys(("follows", "chunk_ends_known", "goes_on", "whole"), (True,)),
    **dict.fromkeys(("mask_token", "max_model_len", "left", "draft_pass"), (None,)),
    **dict.fromkeys(("replaced", "site", "allocated", "task", "given"), (None,)),
}


def spoilt(answer: Any, field: str = "", optional: Set[str] = frozenset(_OPTIONAL)) -> Iterator[tuple[str, Any]]:
    """Yield changed answers with a description each.

    Each has one value of a wrong type, or lacks one key that is not in `optional`.
    """
    for value in WRONG:
        is_same = type(value) is type(answer) or (isinstance(answer, bool) and isinstance(value, bool))
        if not is_same and not any(value is also or value == also for also in ALSO.get(field, ())):
            yield f"{field} {value}", value
    if isinstance(answer, dict):
        for name, value in answer.items():
            if field not in ("probes", "counts", "leaks", "writers"):
                others = {key: other for key, other in answer.items() if key != name}
                yield from () if name in optional else [(f"no {name}", others)]
            of_inner = _OPTIONAL_AT.get(answer["point"], set()) if name == "values" else optional
            yield from ((what, {**answer, name: other}) for what, other in spoilt(value, name, of_inner))
    if isinstance(answer, list):
        for index, value in enumerate(answer):
            for what, other in spoilt(value, field, optional):
                yield f"{what} at {index}", [*answer[:index], other, *answer[index + 1 :]]


def line_of(answer: Any) -> bytes:
    return json.dumps({"number": 3, "answer": answer}).encode()


def _without_harm(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without the harm of its races, which a later question returns."""
    for race in answer.get("races", ()):
        assert race["order"].pop("harm") is None
    return answer


@pytest.mark.parametrize("kind", ANSWERS)
def test_answer_round_trips(kind: type[Value]) -> None:
    taken = answer_in(line_of(ANSWERS[kind]), 3, kind)
    assert isinstance(taken, kind)
    assert ANSWERS[kind] == _without_harm(taken.model_dump(mode="json"))


@pytest.mark.parametrize("kind", ANSWERS)
def test_answer_with_a_wrong_type_or_a_missing_key_is_refused(kind: type[Value]) -> None:
    tried = list(spoilt(ANSWERS[kind]))
    assert len(tried) >= len(WRONG) - 1
    taken = []
    for what, answer in tried:
        try:
            answer_in(line_of(answer), 3, kind)
        except MessageError:
            continue
        taken.append(what)
    assert taken == []


def test_exception_of_the_engine_is_accepted_as_any_answer() -> None:
    line = json.dumps(
        {"number": 3, "error": "RuntimeError: no", "where": _SITE, "callers": [_SITE], "seen": SEEN}
    ).encode()
    failed, site = answer_in(line, 3, Stepped), Site.model_validate(_SITE)
    assert isinstance(failed, Failed)
    assert (failed.error, failed.where, failed.callers) == ("RuntimeError: no", site, (site,))
    assert [seen.model_dump(mode="json")["values"] for seen in failed.seen] == [seen["values"] for seen in SEEN]
    with pytest.raises(MessageError, match="an answer to question 3, not to 4"):
        answer_in(line, 4, Stepped)


def test_error_message_is_one_line_with_the_path_of_the_field() -> None:
    answer = {**ANSWERS[Stepped], "deliveries": [{**_DELIVERY, "output": [["x"], None]}]}
    with pytest.raises(MessageError, match=r"^deliveries\.0\.output\.0\.0: Input should be a valid integer$"):
        answer_in(line_of(answer), 3, Stepped)
