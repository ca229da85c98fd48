"""What was probably meant otherwise than it is read is said before the training starts, and nothing else is."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esad.detectors.model_file import load

FOREST = ("--method", "iforest")


@pytest.fixture
def told(esad, tmp_path):
    """Trains on a file of the given columns; gives what was said and the kind of each column."""

    def train(columns, *options):
        names, cells = list(columns), list(zip(*columns.values(), strict=True))
        lines = [";".join(names), *(";".join(map(str, row)) for row in cells)]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = esad("fit", tmp_path / "t.csv", "--out", tmp_path / "m.esad", "--json", *FOREST, *options)
        assert done.code == 0, done.err
        return done.err, {column["name"]: column["kind"] for column in done.json["data"]["columns"]}

    return train


SIZES = [f"{1 + row % 13 / 8}" for row in range(60)]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            [f"{row}.5 kg" for row in range(60)],
            "is nearly all numbers but read as text, because of cells such as '0.5 kg'",
        ),
        ([f"{row % 3}0 kg" for row in range(60)], "because of cells such as '00 kg'"),
        ([f"{row},5" for row in range(60)], "Write numbers like 1234.56, or read the file with --decimal ,"),
        (["error" if row == 7 else f"{row}.5" for row in range(60)], "because of cells such as 'error'"),
        (["too hot" if row % 3 else f"{row}.5" for row in range(60)], None),
        (["too hot" if row % 3 == 0 else f"{row}.5" for row in range(60)], "because of cells such as 'too hot'"),
        (
            [["-", "--", "n.a.", "unknown", "tbd"][row % 5] if row % 3 == 0 else f"{row}.5" for row in range(60)],
            "because of cells such as 'tbd'",
        ),
        ([["-", "--", "n.a.", "unknown"][row % 4] for row in range(60)], None),
        ([f"{row % 12 + 1}/{row % 28 + 1}/2024" for row in range(60)], None),
        ([f"{row % 28 + 1} Jan 2024" for row in range(60)], None),
        ([f"{row % 24}:{row:02d}" for row in range(60)], "looks like dates or times"),
        ([f"{row % 12 + 10}.02.24" for row in range(60)], "how they are written with --date-format day-first"),
        ([f"{'$€'[row % 2]}{row}.50" for row in range(60)], "holds amounts in '$', '€', and is read as text"),
        ([f"{row % 31 + 1}.02.2024" for row in range(60)], "because of cells such as '30.02.2024'"),
        (["13/13/2024" if row == 9 else f"1/{row % 28 + 1}/2024" for row in range(60)], "such as '13/13/2024'"),
        (
            ["soon" if row == 7 else f"2024-{row % 12 + 1:02d}-{row % 28 + 1:02d}" for row in range(60)],
            "is nearly all dates but read as text, because of cells such as 'soon'",
        ),
        (["red" if row % 2 else "blue" for row in range(60)], None),
        ([f"10.0.0.{row % 9}" for row in range(60)], None),
        (["yes" if row % 2 else "no" for row in range(60)], None),
        ([f"a{row // 2 if row < 8 else row}" for row in range(60)], "holds 56 different texts in 60 rows"),
        ([f"a{row % 40}" for row in range(60)], None),
        ([f"{'AB'[row % 2]}{row % 9}" for row in range(60)], None),
    ],
)
def test_text_that_looks_like_numbers_or_dates_is_pointed_at(told, cells, said):
    err, _ = told({"size": SIZES, "odd": cells})
    assert err.count("column 'odd'") == (said is not None)
    assert (said or "") in err


@pytest.mark.parametrize("how", [(), ("--stream", "--method", "autoencoder", "--set", "n_epochs=1")])
def test_times_that_are_left_out_as_ids_are_pointed_at(told, how):
    times = [f"{row % 24}:{row:02d}" for row in range(60)]
    err, kinds = told({"size": SIZES, "time": times}, *how)
    assert "time" not in kinds
    assert "column 'time' looks like dates or times but is read as text" in err


def test_thousands_and_dates_with_points_are_read(told):
    money = [f"{1000 + 7 * row:,}".replace(",", ".") + ",5" for row in range(60)]
    err, kinds = told({"money": money, "made": [f"{row % 28 + 1}.{row % 12 + 1}.2024" for row in range(60)]})
    assert kinds == {"money": "number", "made": "date"}
    assert err.startswith("note: read as numbers, though not written plainly: 'money'\n")
    assert err.count("\n") == 1


def test_numbers_train_and_score_alike_however_they_are_written(esad, tmp_path):
    values = [(1000 + 37 * row) / 4 for row in range(60)]
    plain = "a,b\n" + "".join(f"{value},{row % 5}\n" for row, value in enumerate(values))
    written = "a,b\n" + "".join(f'"${value:,.2f}",{row % 5}\n' for row, value in enumerate(values))
    scores = []
    for name, text in (("plain", plain), ("written", written)):
        data, model = tmp_path / f"{name}.csv", tmp_path / f"{name}.esad"
        data.write_text(text, encoding="utf-8")
        assert esad("fit", data, "--out", model, *FOREST).code == 0
        for other in ("plain", "written"):
            (tmp_path / f"{other}.csv").write_text(plain if other == "plain" else written, encoding="utf-8")
            assert esad("score", model, tmp_path / f"{other}.csv", "--out", tmp_path / "s.csv").code == 0
            scores.append((tmp_path / "s.csv").read_text(encoding="utf-8"))
    assert len(set(scores)) == 1


def test_a_file_without_a_header_is_pointed_at(told):
    err, _ = told({"5.1": SIZES, "3.5": SIZES})
    assert "is taken for column names but looks like a row: '5.1', '3.5'" in err


def test_a_comma_that_may_mean_thousands_is_pointed_at(told):
    err, _ = told({"size": [f"{row % 9 + 1},{100 + row}" for row in range(60)], "n": [row % 3 for row in range(60)]})
    assert "numbers such as 1,100 are read with a decimal comma, as 1.100." in err


def test_constant_columns_alone_are_pointed_at(told):
    assert "every column is constant" in told({"a": [1] * 60, "b": ["x"] * 60})[0]


def test_columns_that_are_parted_by_blanks_are_told_what_parts_columns(esad, tmp_path):
    (tmp_path / "t.csv").write_text("a b\n" + "".join(f"{row} {row % 7}\n" for row in range(60)), encoding="utf-8")
    done = esad("fit", tmp_path / "t.csv", "--out", tmp_path / "m.esad")
    assert (done.code, "columns are parted by commas, semicolons, tabs or |." in done.err) == (2, True)


def test_codes_are_read_as_text_where_asked(told, esad, tmp_path):
    codes = [f"{row % 25:03d}" for row in range(60)]
    err, kinds = told({"size": SIZES, "zip": codes})
    assert "read as numbers, though written with leading zeros: 'zip'. If these are codes, pass --text zip." in err
    assert kinds["zip"] == "number"
    err, kinds = told({"size": SIZES, "zip": codes}, "--text", "zip")
    assert (err, kinds["zip"]) == ("", "category")
    assert load(tmp_path / "m.esad").inputs_.preprocessor.feature_names_out()[1] == "zip = 000"
    assert esad("score", tmp_path / "m.esad", tmp_path / "t.csv").code == 0


@pytest.mark.parametrize("how", [(), ("--stream",)])
def test_parquet_columns_are_read_as_text_where_asked(esad, tmp_path, how):
    table = pa.table({"size": [1.0 + row % 13 for row in range(60)], "region": [row % 3 for row in range(60)]})
    pq.write_table(table, tmp_path / "t.parquet")
    model = tmp_path / "m.esad"
    done = esad("fit", tmp_path / "t.parquet", "--text", "region", "--out", model, *how, "--set", "n_epochs=1")
    assert done.code == 0, done.err
    assert load(model).inputs_.preprocessor.schema_.kinds == ("number", "category")
    assert esad("score", model, tmp_path / "t.parquet").code == 0


def test_columns_to_read_as_text_must_be_there_and_have_one_role(esad, parts, tmp_path):
    out = tmp_path / "m.esad"
    done = esad("fit", parts, "--text", "sizes", "--out", out)
    assert (done.code, "has no column 'sizes' (--text). Did you mean 'size'?" in done.err) == (2, True)
    done = esad("fit", parts, "--text", "size", "--ignore", "size", "--out", out)
    assert (done.code, "named twice" in done.err) == (2, True)
    done = esad("fit", parts, "--ignore", "size,colour", "--out", out)
    assert (done.code, "Give --ignore once for each." in done.err) == (2, True)
    assert not out.exists()


def test_the_cell_that_is_named_is_the_one_that_is_no_number(told):
    prices = ["$1,200.50" if row % 2 else "n.k." if row == 40 else f"{row}" for row in range(60)]
    err, _ = told({"size": SIZES, "price": prices})
    assert "because of cells such as 'n.k.'" in err


def test_more_anomalies_than_all_other_rows_are_doubted(told):
    said, _ = told(
        {"size": SIZES, "state": ["bad" if row < 50 else "" for row in range(60)]},
        "-l",
        "state",
        "--anomaly-value",
        "bad",
    )
    assert "50 of 60 rows are labelled anomalies, more than all others. Are the labels the other way round?" in said
