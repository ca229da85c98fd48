"""What the service answers, as OpenAPI schemas; and its OpenAPI document, with examples of the model's own columns."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from esad.serve import bodies
from esad.serve.model import ServedModel
from esad.table.table import Schema

_DESCRIPTION = """Scores rows or pictures with one trained model: the higher, the more anomalous.

Errors have one shape, `Problem`. With API keys, send one as `Authorization: Bearer KEY`."""
_EXAMPLE_CELLS = {"number": 1.5, "boolean": True, "category": "text", "date": "2024-02-29"}
_CELL = {"type": ["string", "number", "boolean", "null"]}
_REFUSALS = {
    400: "The body is not of its type.",
    401: "An API key is needed.",
    403: "A page of another site asks, the key is for something else, or the service has no keys.",
    405: "The path takes another method.",
    408: "The request took too long to arrive.",
    409: "There is no model to go back to.",
    413: "Too many bytes or rows.",
    415: "This type of body is not taken.",
    421: "The service does not go by this host name.",
    422: "The rows do not fit the model.",
    429: "The key has asked too often.",
    503: "Too busy, or stopping. Try again later.",
}


class Model(BaseModel):
    """Which model answered."""

    file: str
    version: str = Field(description="The first 16 hexadecimal digits of the model file's SHA-256.")
    method: str
    loaded_at: str


class _Row(BaseModel):
    row: int = Field(description="Number of the row in the request, from 0.")
    id: str | float | bool | None = Field(default=None, description="The id column's cell, or the upload's file name.")
    score: float = Field(description="Higher is more anomalous.")
    anomaly: bool = Field(description="Whether the score is above the threshold.")


class Score(_Row):
    """One row's score."""

    p_value: float | None = Field(
        default=None, description="Of calibrated models: how likely a normal row scores so high."
    )


class Scores(BaseModel):
    """Scores in the order of the request."""

    model: Model
    threshold: float
    n_rows: int
    n_flagged: int
    rows: list[Score]


class ExplainedRow(_Row):
    """Why one row got its score."""

    terms: dict[str, dict[str, float]] = Field(description="What the score is the sum of, with each term's base.")
    columns: list[dict[str, Any]] | None = Field(default=None, description="Of tables: the largest shares first.")
    hottest: dict[str, float] | None = Field(default=None, description="Of pictures: where to look.")
    cases: list[dict[str, Any]] = Field(description="The nearest labelled cases, if the model keeps any.")


class Explained(BaseModel):
    """Reasons in the order of the request."""

    model: Model
    threshold: float
    rows: list[ExplainedRow]


class ModelColumn(BaseModel):
    """One column that the model takes."""

    name: str
    kind: str = Field(description="number, boolean, category or date")
    typical: float | bool | str | None = Field(description="What an ordinary row has there.")


class Description(BaseModel):
    """What the model is."""

    model: Model
    summary: str = Field(description="The method in a line.")
    threshold: float
    threshold_rule: str | None = Field(description="How the threshold was set.")
    calibration: str | None = Field(description="What p-values rest on; null where there are none.")
    labels: dict[str, int] = Field(description="Training rows by their label: anomaly, normal, unlabelled.")
    columns: list[ModelColumn] | None = Field(description="Of tables.")
    shape: list[int] | None = Field(description="Of pictures: channels, height, width.")


class Health(BaseModel):
    """Whether the service answers, and with what."""

    status: str
    model: Model
    takes: str = Field(description="table or images")
    problem: str | None = Field(description="Why the model file as it is now is not served.")


class Ready(BaseModel):
    """Whether a request would be answered now."""

    status: str


class Reloaded(BaseModel):
    """What became of the model file."""

    outcome: str = Field(description="replaced, unchanged or rolled back")
    model: Model


class _Error(BaseModel):
    status: int
    code: str
    message: str
    reference: str | None = Field(default=None, description="Of defects: where the log has it.")


class Problem(BaseModel):
    """Why a request was refused."""

    error: _Error


def describe_answers(model: type[BaseModel] | None, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe what a route answers, if that is JSON, and its refusals, with those that every route has."""
    answers: dict[int | str, dict[str, Any]] = {} if model is None else {200: {"model": model}}
    refused = (401, 421, 503, *statuses)
    return answers | {status: {"model": Problem, "description": _REFUSALS[status]} for status in refused}


def make_openapi(app: FastAPI, served: ServedModel, *, with_keys: bool) -> dict[str, Any]:
    """The OpenAPI document of the service while it serves this model."""
    document = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
    content = _request_content(served)
    for path in ("/score", "/explain"):
        document["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
    if with_keys:
        schemes = {"key": {"type": "http", "scheme": "bearer"}}
        document.setdefault("components", {})["securitySchemes"] = schemes
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path in ("/health", "/ready") else [{"key": []}]
    return document


def _request_content(served: ServedModel) -> dict[str, Any]:
    schema = served.detector.inputs_.schema
    binary = {"schema": {"type": "string", "format": "binary"}}
    if schema is None:
        channels, height, width = served.detector.inputs_.shape
        told = f"{width} x {height} pixels, {'grey' if channels == 1 else 'colour'}"
        files = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
        form = {"type": "object", "properties": {"files": files}, "required": ["files"]}
        pictures = {"schema": {"type": "string", "format": "binary", "description": told}}
        return {bodies.PNG: pictures, bodies.JPEG: pictures, bodies.MULTIPART: {"schema": form}, bodies.NPY: binary}
    example = {column.name: _EXAMPLE_CELLS[column.kind] for column in schema.columns}
    return {
        bodies.JSON: {"schema": _json_schema(schema), "example": {"rows": [example]}},
        bodies.CSV: {"schema": {"type": "string"}, "example": _write_lines(example, ",")},
        bodies.TSV: {"schema": {"type": "string"}, "example": _write_lines(example, "\t")},
        bodies.PARQUET: binary,
        bodies.NPY: binary,
    }


def _json_schema(schema: Schema) -> dict[str, Any]:
    kinds = {
        "number": {"type": ["number", "null"]},
        "boolean": {"type": ["boolean", "null"]},
        "category": _CELL,
        "date": {"type": ["string", "null"], "format": "date"},
    }
    named = {
        "type": "object",
        "properties": {column.name: kinds[column.kind] for column in schema.columns},
        "required": list(schema.names),
    }
    n_columns = len(schema.columns)
    listed = {"type": "array", "prefixItems": [kinds[column.kind] for column in schema.columns], "items": False}
    listed |= {"minItems": n_columns, "maxItems": n_columns}
    rows = {"anyOf": [{"type": "array", "minItems": 1, "items": item} for item in (named, listed)]}
    return {"type": "object", "properties": {"rows": rows}, "required": ["rows"], "additionalProperties": False}


def _write_lines(example: dict[str, Any], separator: str) -> str:
    """A header and a row; what holds a mark that may pass for a separator is quoted."""
    texts = [*example, *("true" if cell is True else str(cell) for cell in example.values())]
    cells = ['"' + text.replace('"', '""') + '"' if set(text) & set(',;\t|"\n') else text for text in texts]
    return "".join(f"{separator.join(line)}\n" for line in (cells[: len(example)], cells[len(example) :]))
