"""The section tls_server_config of the web configuration, with Go's names, and its TLS context."""

import contextlib
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from kvcache_exporter.config.kinds import BOOLEAN, NAME, SECRET_FILE, Choice
from kvcache_exporter.config.section import Problems, Section
from kvcache_exporter.errors import KVCacheError

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{suite}": f"ECDHE-{key}-{name}"
    for key in ("ECDSA", "RSA")
    for suite, name in (
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
# TLS 1.3 always offers all of these, in Go as in OpenSSL; listing them has no effect.
CIPHERS_TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

_INLINE = "not supported inline; write it to a file and name the file in {}"
_Version = Annotated[str, Choice("TLS version", tuple(VERSIONS))]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServer(Section):
    REFUSED: ClassVar[Mapping[str, str]] = {
        name: _INLINE.format(f"{name}_file") for name in ("cert", "key", "client_ca")
    }

    cert_file: Annotated[str, SECRET_FILE]
    key_file: Annotated[str, SECRET_FILE]
    client_auth_type: Annotated[str, Choice("client authentication", tuple(CLIENT_AUTH))] = "NoClientCert"
    client_ca_file: Annotated[str | None, SECRET_FILE] = None
    client_allowed_sans: tuple[Annotated[str, NAME], ...] = ()
    min_version: _Version = "TLS12"
    max_version: _Version = "TLS13"
    cipher_suites: tuple[Annotated[str, Choice("cipher suite", (*CIPHERS, *CIPHERS_TLS13))], ...] = ()
    prefer_server_cipher_suites: Annotated[bool, BOOLEAN] = True
    curve_preferences: tuple[Annotated[str, Choice("curve", tuple(CURVES))], ...] = ()

    def problems(self) -> Problems:
        verifies = CLIENT_AUTH[self.client_auth_type] != ssl.CERT_NONE
        if verifies and not self.client_ca_file:
            yield "client_auth_type", f"{self.client_auth_type} needs client_ca_file; add it"
        if self.client_ca_file and not verifies:
            yield "client_ca_file", "has no effect without a client_auth_type that verifies; add one"
        if self.client_allowed_sans and self.client_auth_type != "RequireAndVerifyClientCert":
            yield "client_allowed_sans", "needs client_auth_type RequireAndVerifyClientCert; set it"
        if VERSIONS[self.min_version] > VERSIONS[self.max_version]:
            yield "min_version", "is above max_version; lower it"
        if len(self.curve_preferences) > 1:
            yield "curve_preferences", "OpenSSL takes one curve or its own order; name one or none"
        try:
            self.context()
        except KVCacheError as error:
            yield "", str(error)
        except OSError:
            return  # reported when the paths were read

    def context(self) -> ssl.SSLContext:
        """Raises KVCacheError if a file cannot be used, OSError if it cannot be read."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = VERSIONS[self.min_version]
        context.maximum_version = VERSIONS[self.max_version]
        self._choose_ciphers(context)
        if len(self.curve_preferences) == 1:
            context.set_ecdh_curve(CURVES[self.curve_preferences[0]])
        self._load_files(context)
        context.verify_mode = CLIENT_AUTH[self.client_auth_type]
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _choose_ciphers(self, context: ssl.SSLContext) -> None:
        names = [CIPHERS[name] for name in self.cipher_suites if name in CIPHERS]
        if names:
            context.set_ciphers(":".join(names))
        elif self.cipher_suites:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        if not self.prefer_server_cipher_suites:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE

    def _load_files(self, context: ssl.SSLContext) -> None:
        pair = f"{self.cert_file} and {self.key_file}"
        problem = f"{pair} are not a certificate and its own key, PEM and without passphrase"
        try:
            # A key with a passphrase must fail, not prompt at the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password="")
            problem = f"{self.client_ca_file} holds no PEM certificate"
            if self.client_ca_file:
                context.load_verify_locations(self.client_ca_file)
        except ssl.SSLError as error:
            raise KVCacheError(f"{problem} ({error.reason})" if error.reason else problem) from error


def has_allowed_san(certificate: Mapping[str, Any] | None, allowed: tuple[str, ...]) -> bool:
    """Whether a client certificate (from `ssl`) has one of the names; no names allow every client."""
    found = (certificate or {}).get("subjectAltName", ())
    return not allowed or any(_canonical(str(value)) in allowed for _, value in found)


def _canonical(name: str) -> str:
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name.strip()))
    return name
