"""The few fields of Kubernetes objects that discovery needs; nothing else is decoded."""

from typing import Annotated

import msgspec

PortNumber = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class Version(msgspec.Struct, rename="camel"):
    resource_version: str


class Versioned(msgspec.Struct):
    """Any object of a watch; bookmarks have no name."""

    metadata: Version


class Named(msgspec.Struct):
    """Any named object."""

    metadata: Metadata


class ContainerPort(msgspec.Struct, rename="camel"):
    container_port: PortNumber
    name: str = ""
    protocol: str = "TCP"


class Container(msgspec.Struct, rename="camel"):
    name: str
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    """`Always` makes an init container a sidecar."""


class PodSpec(msgspec.Struct, rename="camel"):
    containers: list[Container]
    init_containers: list[Container] | None = None


class Condition(msgspec.Struct):
    type: str
    status: str


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] | None = None


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: PodSpec
    status: PodStatus


class EndpointConditions(msgspec.Struct):
    ready: bool | None = None
    terminating: bool | None = None


class ObjectReference(msgspec.Struct):
    kind: str = ""
    name: str = ""


class Endpoint(msgspec.Struct, rename="camel"):
    addresses: list[str]
    conditions: EndpointConditions = msgspec.field(default_factory=EndpointConditions)
    target_ref: ObjectReference | None = None


class EndpointPort(msgspec.Struct):
    name: str | None = None
    port: PortNumber | None = None
    protocol: str = "TCP"


class EndpointSlice(msgspec.Struct):
    metadata: Metadata
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None


class ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct):
    """One page of a list."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None
    """Go encodes an empty list as null."""


class WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Status(msgspec.Struct):
    """The server's description of a failed request."""

    code: int = 0
    message: str = ""
