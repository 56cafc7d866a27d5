"""The network as a program sees it: names, connections, certificates, proxies, HTTP."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing, raised
from tao_sdk.failures.err_class import ErrClass

_ERROR = r"\w*(?:Error|Exception|Timeout)"
# Looked up ahead, once: what follows in a pattern need not be tried for every place of the host.
_HOST = r"(?=(?:.{0,80}?host='(?P<host>[^'\n]{1,100})')?)"

CAUSES = (
    Cause(
        id="dns-failure",
        err_class=ErrClass.INFRA,
        cause="the name server did not answer[ for {host}]",
        suggestion="run again; if it comes back, check the DNS settings of the node or container",
        log=(
            raised(_ERROR, _HOST + r".{0,300}Temporary failure in name resolution"),
            r"^(?:[\w./-]{1,60}: ){1,3}.{0,160}Temporary failure in name resolution",
            r"dial tcp: lookup (?P<host>\S{1,100}).{0,60}: (?:i/o timeout|server misbehaving)",
        ),
        reason=(r"dial tcp: lookup (?P<host>\S{1,100}).{0,60}: (?:i/o timeout|server misb)",),
        specificity=60,
        sample="socket.gaierror: [Errno -3] Temporary failure in name resolution",
    ),
    Cause(
        id="host-unknown",
        err_class=ErrClass.PROGRAM,
        cause="no such host[: {host}]",
        suggestion="check the spelling of the host in the spec and the endpoint variables; inside "
        "a container other names may be known than outside",
        log=(
            raised(_ERROR, _HOST + r".{0,300}Name or service not known"),
            raised("gaierror", r".{0,40}(?:Name or service not known|nodename nor servname)"),
            raised(_ERROR, _HOST + r".{0,200}Failed to resolve '"),
            r"Could not resolve host(?: ?name)?:? (?P<host>[\w.-]{1,100})",
        ),
        specificity=58,
        sample="socket.gaierror: [Errno -2] Name or service not known",
    ),
    Cause(
        id="tls-certificate",
        err_class=ErrClass.CREDENTIAL,
        cause="the certificate of a server is not trusted[: {host}]",
        suggestion="add your organisation's CA to the image (SSL_CERT_FILE, REQUESTS_CA_BUNDLE, "
        "AWS_CA_BUNDLE), and check the clock of the node",
        log=(
            raised(_ERROR, _HOST + r".{0,300}CERTIFICATE_VERIFY_FAILED"),
            r"x509: certificate (?:signed by unknown authority|has expired|is not trusted)",
            r"SSL certificate problem: (?:unable to get local issuer|self.signed|certificate has)",
        ),
        reason=(r"x509: certificate (?:signed by unknown authority|has expired)",),
        specificity=75,
        sample="ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify "
        "failed: unable to get local issuer certificate (_ssl.c:1006)",
    ),
    Cause(
        id="proxy-refused",
        err_class=ErrClass.CREDENTIAL,
        cause="the proxy refused the connection[ ({status})]",
        suggestion="check user and password in HTTPS_PROXY, and put internal hosts into NO_PROXY",
        log=(
            raised(
                _ERROR,
                r".{0,300}(?:Tunnel connection failed|Cannot connect to proxy\.).{0,80}"
                r"(?P<status>40[37] [\w ]{1,40})",
            ),
            r"Received HTTP code (?P<status>40[37]) from proxy after CONNECT",
        ),
        specificity=80,
        sample="OSError: Tunnel connection failed: 407 Proxy Authentication Required",
    ),
    Cause(
        id="proxy-unreachable",
        err_class=ErrClass.INFRA,
        cause="the proxy cannot be reached",
        suggestion="check HTTP_PROXY and HTTPS_PROXY as the container sees them, then run again",
        log=(
            raised(_ERROR, r".{0,200}ProxyError\('(?:Cannot|Unable to) connect to proxy"),
            raised("ProxyError|ProxyConnectionError"),
        ),
        specificity=68,
        sample="requests.exceptions.ProxyError: HTTPSConnectionPool(host='api.ngc.nvidia.com', "
        "port=443): Max retries exceeded with url: /v2/ (Caused by ProxyError('Cannot connect to "
        "proxy.', NewConnectionError('<urllib3.connection.HTTPSConnection object>: Failed to "
        "establish a new connection: [Errno 111] Connection refused')))",
    ),
    Cause(
        id="network-unreachable",
        err_class=ErrClass.INFRA,
        cause="there is no network route[ to {host}]",
        suggestion="check that the node may reach the outside (compute nodes often may not), then "
        "run again or stage the data beforehand",
        log=(
            raised(_ERROR, _HOST + r".{0,300}\[Errno 101\] Network is unreachable"),
            raised(_ERROR, _HOST + r".{0,300}\[Errno 113\] No route to host"),
            r"^(?:[\w./-]{1,60}: ){1,3}.{0,160}(?:Network is unreachable|No route to host)$",
        ),
        specificity=58,
        sample="OSError: [Errno 101] Network is unreachable",
    ),
    Cause(
        id="connection-refused",
        err_class=ErrClass.PROGRAM,
        cause="nothing listens where the program wants to connect[: {host}]",
        suggestion="start that service first, or correct its host and port in the spec",
        log=(
            raised("ConnectionRefusedError"),
            raised(_ERROR, _HOST + r".{0,300}\[Errno 111\] Connection refused"),
            r"^(?:curl: \(7\)|fatal: unable to access \S{1,300}:) Failed to connect to "
            r"(?P<host>\S{1,100}) port",
        ),
        specificity=40,
        sample="ConnectionRefusedError: [Errno 111] Connection refused",
    ),
    Cause(
        id="connection-lost",
        err_class=ErrClass.INFRA,
        cause="a connection broke[ to {host}]",
        suggestion="run again; if it comes back at the same place, the other side closes it: look "
        "at its log",
        log=(
            raised("ConnectionResetError"),
            raised(_ERROR, _HOST + r".{0,300}\[Errno 104\] Connection reset by peer"),
            raised(_ERROR, _HOST + r".{0,300}Connection broken: (?:Incomplete|ConnectionReset)"),
            raised("IncompleteRead|ChunkedEncodingError|RemoteDisconnected|RemoteProtocolError"),
            raised("ContentTooShortError"),
        ),
        standing=Standing.COLLATERAL,
        specificity=45,
        sample="ConnectionResetError: [Errno 104] Connection reset by peer",
    ),
    Cause(
        id="request-timed-out",
        err_class=ErrClass.INFRA,
        cause="a server did not answer in time[: {host}]",
        suggestion="run again; if it comes back, check that the server is reachable from the node "
        "and raise the client's timeout",
        log=(
            raised("ReadTimeout|ReadTimeoutError|ConnectTimeout|ConnectTimeoutError", _HOST),
            raised(_ERROR, _HOST + r".{0,300}(?:ConnectTimeoutError|ReadTimeoutError)\("),
            raised("TimeoutError|OSError", r"\[Errno 110\] Connection timed out"),
        ),
        specificity=45,
        sample="requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='files.example.org', "
        "port=443): Read timed out. (read timeout=30)",
    ),
    Cause(
        id="http-denied",
        err_class=ErrClass.CREDENTIAL,
        cause="a server refused access ({status})[: {url}]",
        suggestion="check the credential for that address, and whether it is the right address",
        log=(
            raised(
                _ERROR,
                r"(?:HTTP Error )?(?P<status>40[13])(?: Client Error)?: (?:Unauthorized|Forbidden)"
                r"(?: for url: (?P<url>\S{1,300}))?",
            ),
            raised(_ERROR, r"Client error '(?P<status>40[13]) [^']{1,40}' for url '(?P<url>\S+)'"),
        ),
        specificity=45,
        sample="urllib.error.HTTPError: HTTP Error 403: Forbidden",
    ),
    Cause(
        id="http-not-found",
        err_class=ErrClass.DATA,
        cause="a server does not have what was asked for (404)[: {url}]",
        suggestion="check the address in the spec",
        log=(
            raised(
                _ERROR,
                r"(?:HTTP Error )?404(?: Client Error)?: Not Found"
                r"(?: for url: (?P<url>\S{1,300}))?",
            ),
            raised(_ERROR, r"Client error '404 [^']{1,40}' for url '(?P<url>\S+)'"),
        ),
        specificity=45,
        sample="requests.exceptions.HTTPError: 404 Client Error: Not Found for url: "
        "https://files.example.org/weights/r50.pth",
    ),
    Cause(
        id="http-server-error",
        err_class=ErrClass.INFRA,
        cause="a server failed ({status})[: {url}]",
        suggestion="run again later; the fault is on the server's side",
        log=(
            raised(
                _ERROR,
                r"(?:HTTP Error )?(?P<status>50[0234])(?: Server Error)?: [\w -]{1,60}"
                r"(?: for url: (?P<url>\S{1,300}))?",
            ),
            raised(_ERROR, r"Server error '(?P<status>5\d\d) [^']{1,40}' for url '(?P<url>\S+)'"),
        ),
        specificity=50,
        sample="requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: "
        "https://files.example.org/weights/r50.pth",
    ),
)
