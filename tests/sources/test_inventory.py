from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from mixer.errors import ChangedError, CorruptionError, InputError
from mixer.sources.inventory import Inventory, check_unchanged, take_inventory
from tests.sources.layouts import STORED, written

ROOT = Path(__file__).parents[2]


def test_an_inventory_says_what_the_files_are(tmp_path: Path) -> None:
    inventory = written(tmp_path, [[3, 4], [], [0], [5]]).inventory
    assert [entry.rows for entry in inventory.files] == [7, 0, 0, 5]
    assert [entry.row_group_rows for entry in inventory.files] == [(3, 4), (), (0,), (5,)]
    assert inventory.rows == 12
    for entry in inventory.files:
        status = Path(entry.url).stat()
        assert (entry.bytes, entry.version) == (status.st_size, str(status.st_mtime_ns))
    assert inventory.bytes == sum(entry.bytes for entry in inventory.files)
    metadata = [pq.read_metadata(entry.url) for entry in inventory.files]
    assert inventory.uncompressed_bytes == sum(
        each.row_group(group).total_byte_size for each in metadata for group in range(each.num_row_groups)
    )


def test_schemas_are_given_for_each_file_as_stored_and_shared_where_equal(tmp_path: Path) -> None:
    written(tmp_path, [[3], [], [2]])
    pq.write_table(pa.table({"other": [1]}, metadata={"k": "v"}), tmp_path / "z.parquet")
    _, schemas = take_inventory("d", str(tmp_path))
    assert [schema.names for schema in schemas] == [STORED.names] * 3 + [["other"]]
    assert schemas[0] is schemas[1] is schemas[2]
    assert schemas[0].field("label").type == STORED.field("label").type
    assert schemas[3].metadata == {b"k": b"v"}


def test_an_inventory_comes_back_from_json(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    inventory = written(tmp_path, [[3], [0], []]).inventory
    text = json.dumps(inventory.to_json(), sort_keys=True)
    assert Inventory.from_json(json.loads(text)) == inventory
    assert inventory.ignored == (str(tmp_path / "_SUCCESS"),)


@pytest.mark.parametrize(
    "value", [{}, {"files": [{}], "ignored": []}, {"files": [{"row_group_rows": []}], "ignored": []}]
)
def test_json_of_something_else_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(CorruptionError, match="does not have the keys"):
        Inventory.from_json(value)


def test_a_footers_hash_is_equal_for_equal_files_and_tells_other_values_apart(tmp_path: Path) -> None:
    for folder, table in [
        ("a", pa.table({"x": [1, 2]})),
        ("b", pa.table({"x": [1, 2]})),
        ("c", pa.table({"x": [1, 3]})),
    ]:
        (tmp_path / folder).mkdir()
        pq.write_table(table, tmp_path / folder / "0.parquet")
    first, second, third = (take_inventory("d", str(tmp_path / f))[0].files[0].footer_sha256 for f in "abc")
    assert first == second != third


def test_a_footer_longer_than_the_first_guess_is_read_whole(tmp_path: Path) -> None:
    names = [f"column {number:04d} {'x' * 60}" for number in range(700)]
    pq.write_table(pa.table({name: [1] for name in names}), tmp_path / "0.parquet")
    assert int.from_bytes((tmp_path / "0.parquet").read_bytes()[-8:-4], "little") > 64 * 1024
    inventory, (schema,) = take_inventory("d", str(tmp_path))
    assert (inventory.rows, schema.names) == (1, names)


def _encrypted(path: Path, *, plaintext_footer: bool = False) -> None:
    class PlainKms(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes.hex().encode()

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return bytes.fromhex(wrapped_key.decode())

    properties = pe.CryptoFactory(lambda _: PlainKms()).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["a"]}, plaintext_footer=plaintext_footer),
    )
    pq.write_table(pa.table({"a": [1]}), path, encryption_properties=properties)


def _cut(path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-20])


def _footer_lost(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)
    data = bytearray(path.read_bytes())
    data[-8:-4] = (len(data) + 1).to_bytes(4, "little")
    path.write_bytes(data)


def _footer_garbled(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)
    data = bytearray(path.read_bytes())
    data[-200:-8] = b"\xff" * 192
    path.write_bytes(data)


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (Path.touch, r"found an empty one \(0 bytes\)"),
    "cut short": (_cut, r"found one that begins so but is cut short: its last bytes are .*copy or write it again"),
    "only the magic": (lambda path: path.write_bytes(b"PAR1"), "found one that begins so but is cut short"),
    "the magic twice": (lambda path: path.write_bytes(b"PAR1PAR1"), "found one that begins so but is cut short"),
    "text": (
        lambda path: path.write_text('{"a": 1}\n'),
        "found something else: it begins with .*say its `format` if that is another",
    ),
    "one byte": (lambda path: path.write_bytes(b"x"), "found something else"),
    "encrypted": (_encrypted, "found one with an encrypted footer; decrypt it first"),
    "encrypted columns": (
        lambda path: _encrypted(path, plaintext_footer=True),
        "found one with encrypted columns; decrypt it first",
    ),
    "a footer longer than the file": (_footer_lost, r"found a footer said to be \d+ bytes long in a file of"),
    "a garbled footer": (_footer_garbled, "found a footer that cannot be read"),
}


@pytest.mark.parametrize(("make", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_what_is_not_whole_parquet_is_named(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    written(tmp_path, [[3], [3]])
    make(tmp_path / "part-000x.parquet")
    with pytest.raises(
        InputError, match=rf"dataset 'd', file .*part-000x\.parquet: expected a Parquet file, {message}"
    ):
        take_inventory("d", str(tmp_path))


def test_all_bad_files_are_named_at_once(tmp_path: Path) -> None:
    written(tmp_path, [[3]])
    (tmp_path / "a.parquet").touch()
    (tmp_path / "b.parquet").write_bytes(b"no")
    with pytest.raises(InputError, match=r"(?s)'d': 2 of 3 files cannot be used:.*a\.parquet.*\n.*b\.parquet"):
        take_inventory("d", str(tmp_path))


def test_a_footer_whose_row_groups_do_not_add_up_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "0.parquet")
    data = (tmp_path / "0.parquet").read_bytes()
    # In Thrift's compact protocol: the number of rows as a zigzag integer, before the list of row groups.
    assert data.count(b"\x16\x06\x19") == 1
    (tmp_path / "0.parquet").write_bytes(data.replace(b"\x16\x06\x19", b"\x16\x08\x19"))
    with pytest.raises(InputError, match=r"0\.parquet: its footer says 4 rows in all, but 3 in its 1 row groups"):
        take_inventory("d", str(tmp_path))


def test_a_column_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a name": [1]}), tmp_path / "0.parquet", store_schema=False)
    data = (tmp_path / "0.parquet").read_bytes()
    (tmp_path / "0.parquet").write_bytes(data.replace(b"a name", b"a n\xffme"))
    with pytest.raises(InputError, match=r"0\.parquet: .*can't decode byte 0xff"):
        take_inventory("d", str(tmp_path))


DAMAGE = """
import random
from pathlib import Path
import pyarrow as pa
from mixer.errors import MixerError
from tests.sources.layouts import PIECES, WHOLE, ParquetSource, take_inventory, written

dataset = written(Path(FOLDER), [[20, 30]])
path = Path(FOLDER) / "part-000.parquet"
whole, chance, refused = path.read_bytes(), random.Random(1), 0
footer_bytes = int.from_bytes(whole[-8:-4], "little") + 8
for trial in range(400):
    data = bytearray(whole)
    for _ in range(1 + trial % 3):
        data[chance.randrange(len(data) - footer_bytes, len(data))] = chance.randrange(256)
    path.write_bytes(data)
    try:
        inventory, _ = take_inventory("d", FOLDER)
        source = ParquetSource("d", inventory, dataset.table.schema, limits=(PIECES, WHOLE)[trial % 2])
        source.read(0, source.rows)
        source.close()
    except MixerError:
        refused += 1
print(refused)
"""


def test_no_damaged_footer_ends_the_process_or_gives_an_unknown_error(tmp_path: Path) -> None:
    code = f"FOLDER = {str(tmp_path)!r}\n{DAMAGE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


def test_nothing_found_names_the_dataset(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dataset 'web': input .*found nothing"):
        take_inventory("web", f"{tmp_path}/*.parquet")


def _rewrite_alike(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    os.utime(path, ns=(7, 7))


def test_every_changed_file_is_named_with_what_was_expected_and_found(tmp_path: Path) -> None:
    inventory = written(tmp_path, [[3], [3], [3], [3]]).inventory
    check_unchanged("d", inventory)
    (tmp_path / "part-004.parquet").write_bytes(b"a new file is none of the run's business")
    check_unchanged("d", inventory)
    (tmp_path / "part-000.parquet").unlink()
    written(tmp_path / "more", [[4]])
    (tmp_path / "more/part-000.parquet").replace(tmp_path / "part-001.parquet")
    _rewrite_alike(tmp_path / "part-003.parquet")
    with pytest.raises(ChangedError, match="dataset 'd': 3 of 4 input files have changed") as caught:
        check_unchanged("d", Inventory.from_json(inventory.to_json()))
    lines = str(caught.value).splitlines()[1:]
    assert lines[0] == f"- {tmp_path}/part-000.parquet: expected a file, found none"
    assert lines[1].startswith(f"- {tmp_path}/part-001.parquet: expected {inventory.files[1].bytes} bytes, found")
    assert lines[2].startswith(f"- {tmp_path}/part-003.parquet: expected version {inventory.files[3].version}, found 7")
    assert len(lines) == 3
