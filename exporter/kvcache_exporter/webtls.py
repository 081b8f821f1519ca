"""Reads the TLS section of the web configuration file, in Go's names, and builds the server's context."""

import contextlib
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.yamlpos import Reader

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
# TLS 1.3 always offers all of these, in Go as in OpenSSL; naming them chooses nothing.
CIPHERS_TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

_SECTION = "tls_server_config"
_KEYS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
    "curve_preferences",
)
_HINTS = {
    name: f"not supported inline; write it to a file and name the file in {name}_file"
    for name in ("cert", "key", "client_ca")
}
_ANY_CERTIFICATE = "; a certificate that nobody verifies proves nothing"
_OUTDATED = "; versions before TLS 1.2 are broken"
_REFUSED = {
    "RequireAnyClientCert": _ANY_CERTIFICATE,
    "RequireClientCert": _ANY_CERTIFICATE,
    "TLS10": _OUTDATED,
    "TLS11": _OUTDATED,
}


@dataclass(frozen=True, slots=True)
class TLSOptions:
    """The section tls_server_config, checked; paths are absolute."""

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    client_auth: str = "NoClientCert"
    allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()
    prefer_server_ciphers: bool = True
    curves: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path)


def context_of(options: TLSOptions) -> ssl.SSLContext:
    """Raises KVCacheError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[options.min_version]
    context.maximum_version = VERSIONS[options.max_version]
    _choose_ciphers(context, options)
    if len(options.curves) == 1:
        context.set_ecdh_curve(CURVES[options.curves[0]])
    _load_files(context, options)
    context.verify_mode = CLIENT_AUTH.get(options.client_auth, ssl.CERT_NONE)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_files(context: ssl.SSLContext, options: TLSOptions) -> None:
    cert, key, client_ca = options.cert_file, options.key_file, options.client_ca_file
    try:
        # A key with a passphrase must fail, not ask at the terminal.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        problem = f"{cert} and {key} are not a certificate and its own key, PEM and without passphrase"
        raise KVCacheError(f"{problem}{_reason(error)}") from error
    try:
        if client_ca:
            context.load_verify_locations(client_ca)
    except OSError as error:
        raise KVCacheError(f"{client_ca} holds no PEM certificate{_reason(error)}") from error


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return f" ({reason})" if reason else ""


def _choose_ciphers(context: ssl.SSLContext, options: TLSOptions) -> None:
    names = [CIPHERS[name] for name in options.ciphers if name in CIPHERS]
    if names:
        context.set_ciphers(":".join(names))
    elif options.ciphers:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not options.prefer_server_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


def has_allowed_san(peer: ssl.SSLSocket, allowed: tuple[str, ...]) -> bool:
    """Whether the client's certificate carries one of the names; no names allow everybody."""
    if not allowed:
        return True
    found = (peer.getpeercert() or {}).get("subjectAltName", ())
    return any(_canonical(str(pair[1])) in allowed for pair in found if isinstance(pair, tuple))


def _canonical(name: str) -> str:
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name.strip()))
    return name


def read_tls(reader: Reader, node: yaml.Node | None, notes: list[str]) -> TLSOptions | None:
    """The section tls_server_config; None if it is absent or empty, problems go to the reader."""
    found = reader.fields(node, _SECTION, _KEYS, _HINTS)
    if node is None or not found:
        return None
    section = _Section(reader, node, found)
    options = TLSOptions(
        cert_file=section.file("cert_file", required=True),
        key_file=section.file("key_file", required=True),
        client_ca_file=section.file("client_ca_file", required=False),
        client_auth=section.choice("client_auth_type", (*CLIENT_AUTH, "RequestClientCert"), "NoClientCert"),
        allowed_sans=section.listed("client_allowed_sans", None),
        min_version=section.choice("min_version", tuple(VERSIONS), "TLS12"),
        max_version=section.choice("max_version", tuple(VERSIONS), "TLS13"),
        ciphers=section.listed("cipher_suites", (*CIPHERS, *CIPHERS_TLS13)),
        prefer_server_ciphers=section.flag("prefer_server_cipher_suites", default=True),
        curves=section.listed("curve_preferences", tuple(CURVES)),
    )
    section.check_together(options)
    notes.extend(_notes(options))
    return options


def _notes(options: TLSOptions) -> list[str]:
    notes = []
    if options.client_auth == "RequestClientCert":
        notes.append(f"{_SECTION}.client_auth_type RequestClientCert has no effect: nothing looks at it")
    if len(options.curves) > 1:
        notes.append(f"{_SECTION}.curve_preferences has no effect with several curves: OpenSSL's order holds")
    return notes


class _Section:
    """Reads single keys of the section and complains where they stand."""

    def __init__(self, reader: Reader, node: yaml.Node, found: Mapping[str, yaml.Node]) -> None:
        self._reader = reader
        self._node = node
        self._found = found

    def _complain(self, name: str, message: str) -> None:
        self._reader.complain(self._found.get(name, self._node), f"{_SECTION}.{name}", message)

    def _text(self, name: str) -> str:
        return self._reader.text(self._found.get(name), f"{_SECTION}.{name}")

    def flag(self, name: str, *, default: bool) -> bool:
        return self._reader.boolean(self._found.get(name), f"{_SECTION}.{name}", default=default)

    def file(self, name: str, *, required: bool) -> str:
        value = self._text(name)
        if not value:
            if required:
                self._complain(name, "missing; TLS needs cert_file and key_file")
            return ""
        path = self._reader.file.parent / value
        try:
            path.open("rb").close()
        except OSError as error:
            self._complain(name, f"{path} cannot be read: {error.strerror}")
        return str(path)

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self._text(name) or default
        if value in allowed:
            return value
        hint = _REFUSED.get(value, "")
        self._complain(name, f"expected one of {', '.join(allowed)}, found `{value[:60]}`{hint}")
        return default

    def listed(self, name: str, allowed: tuple[str, ...] | None) -> tuple[str, ...]:
        values = []
        for index, (node, value) in enumerate(
            self._reader.items(self._found.get(name), f"{_SECTION}.{name}")
        ):
            if allowed is not None and value not in allowed:
                message = f"expected one of {', '.join(allowed)}, found `{value[:60]}`"
                self._reader.complain(node, f"{_SECTION}.{name}[{index}]", message)
            values.append(value)
        return tuple(values)

    def check_together(self, options: TLSOptions) -> None:
        verifies = CLIENT_AUTH.get(options.client_auth, ssl.CERT_NONE) != ssl.CERT_NONE
        if verifies and not options.client_ca_file:
            self._complain("client_auth_type", f"{options.client_auth} needs client_ca_file")
        if options.client_ca_file and not verifies:
            self._complain("client_ca_file", "has no effect without client_auth_type that verifies")
        if options.allowed_sans and options.client_auth != "RequireAndVerifyClientCert":
            self._complain("client_allowed_sans", "needs client_auth_type RequireAndVerifyClientCert")
        if VERSIONS[options.min_version] > VERSIONS[options.max_version]:
            self._complain("min_version", "is above max_version")
