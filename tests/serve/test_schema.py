"""Whatever the OpenAPI document allows or forbids: no 5xx, and answers as it says."""

import pytest

schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from schemathesis import checks  # noqa: E402

from esad.serve.app import Service  # noqa: E402
from esad.web.server import in_background  # noqa: E402

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.allow_header_conformance,
]
ROUTES = [("/score", "POST"), ("/explain", "POST"), ("/health", "GET"), ("/metrics", "GET"), ("/reload", "POST")]


@pytest.fixture(scope="module")
def address(request):
    with in_background(Service(request.getfixturevalue(request.param)).guard) as url:
        yield url


@pytest.mark.extra
@pytest.mark.parametrize("address", ["parts", "numbers", "pictures"], indirect=True)
@pytest.mark.parametrize(("path", "method"), ROUTES)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_no_request_breaks_the_service(address, path, method, mode):
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operation = schema[path][method]

    @given(case=operation.as_strategy(generation_mode=mode) if _can(operation, mode) else st.none())
    @settings(
        max_examples=60 if path in ("/score", "/explain") else 5,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        if case is not None:
            case.call_and_validate(checks=CHECKS)

    ask()


def _can(operation, mode):
    return mode == schemathesis.GenerationMode.POSITIVE or operation.body or operation.query
