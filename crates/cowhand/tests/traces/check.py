"""Reads requests of OTLP over HTTP with JSON, one a line, and holds each against the official protobuf schema."""

import base64
import json
import re
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

LENGTHS = {"traceId": 32, "spanId": 16, "parentSpanId": 16}


def as_protobuf(value):
    """OTLP writes ids in hex, where plain protobuf has base64; that is the only difference."""
    if isinstance(value, list):
        return [as_protobuf(item) for item in value]
    if not isinstance(value, dict):
        return value
    known = {}
    for key, item in value.items():
        if key in LENGTHS:
            if not re.fullmatch("[0-9a-f]{%d}" % LENGTHS[key], item) or not item.strip("0"):
                sys.exit(f"{key} is no id: {item!r}")
            known[key] = base64.b64encode(bytes.fromhex(item)).decode()
        else:
            known[key] = as_protobuf(item)
    return known


count = 0
for line in sys.stdin:
    request = ExportTraceServiceRequest()
    json_format.ParseDict(as_protobuf(json.loads(line)), request)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                count += 1
                if not span.name or not 0 < span.start_time_unix_nano <= span.end_time_unix_nano:
                    sys.exit(f"a span without a name, or that ends before it begins: {span}")
                for attribute in span.attributes:
                    if attribute.value.WhichOneof("value") is None:
                        sys.exit(f"an attribute without a value: {span}")
print(count)
