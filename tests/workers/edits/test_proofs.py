"""Stored proofs of fixes."""

from pathlib import Path

from workers.edits.proofs import AGREES, Proof, keep, proofs_of


def test_kept_proof_replaces_the_one_of_the_same_finding(tmp_path: Path) -> None:
    proof = Proof(name="a", engine="vllm", version="1", bug="b", released="stuck", fixed=AGREES, all_fixed=AGREES)
    keep([proof, proof.model_copy(update={"name": "c"})], tmp_path)
    keep([proof.model_copy(update={"fixed": "stuck"})], tmp_path)
    assert [(each.name, each.proves) for each in proofs_of(tmp_path).values()] == [("a", False), ("c", True)]


def test_proof_without_a_bug_in_the_release_proves_nothing() -> None:
    proof = Proof(name="a", engine="vllm", version="1", bug="", released=AGREES, fixed=AGREES, all_fixed=AGREES)
    assert not proof.proves
