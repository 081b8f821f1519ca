"""Asks the exporter for its metrics: the `helm test` of the chart."""

import socket
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

context = ssl.create_default_context()
# The certificate is Prometheus's matter; here it matters that the exporter answers.
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
url = sys.argv[1]
if sys.argv[2:] == ["handshake"]:
    where = urllib.parse.urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=10) as plain:
        context.wrap_socket(plain).close()
    print(f"{url} answers those who have a certificate")
    sys.exit()
try:
    page = urllib.request.urlopen(url, timeout=10, context=context).read().decode()
except urllib.error.HTTPError as error:
    if error.code != 401:
        raise
    print(f"{url} answers those who have a password")
    sys.exit()
if "kvcache_exporter_build_info" not in page:
    sys.exit(f"{url} is no page of kvcache-exporter:\n{page[:500]}")
up = [float(line.split()[-1]) for line in page.splitlines() if line.startswith("kvcache_target_up{")]
print(f"{url} answers; {up.count(1)} of {len(up)} engines are up")
