"""Two certificate authorities as PEM: the injector's, and somebody else's. Their keys were thrown away.

The simulated cluster does no TLS: whether a webhook configuration carries the one or the other is all that matters to
it. They are real certificates because whoever reads a webhook configuration may parse them.
"""

from typing import Final

INJECTOR: Final = """\
-----BEGIN CERTIFICATE-----
MIIBPDCB46ADAgECAhQFU/Z+GT5NhQd5WLAX413dBErEDDAKBggqhkjOPQQDAjAT
MREwDwYDVQQDDAhpbmplY3RvcjAgFw0yNTAxMDEwMDAwMDBaGA8yMTI1MDEwMTAw
MDAwMFowEzERMA8GA1UEAwwIaW5qZWN0b3IwWTATBgcqhkjOPQIBBggqhkjOPQMB
BwNCAATwHCsU2hGEJDYIpNES+j3vKskjR5/VKyepusK/FbFMP9zBY1Y9yjU/Lzlc
qVsPnK52dQyf3H6wKpHTYVspQ7nfoxMwETAPBgNVHRMBAf8EBTADAQH/MAoGCCqG
SM49BAMCA0gAMEUCIQDDjmqZxuBAN8/EElubllYJ5vrr3P4DdHH0qt8/YT8GnQIg
QRAAyB98VATTzy3w+hYUeNCY/L6p1Cqa3EJcv1/6RV4=
-----END CERTIFICATE-----
"""

STRANGER: Final = """\
-----BEGIN CERTIFICATE-----
MIIBRTCB7aADAgECAhQtRRiwUS+phFsOk2qetgkAyFFZBzAKBggqhkjOPQQDAjAY
MRYwFAYDVQQDDA1zb21lYm9keSBlbHNlMCAXDTI1MDEwMTAwMDAwMFoYDzIxMjUw
MTAxMDAwMDAwWjAYMRYwFAYDVQQDDA1zb21lYm9keSBlbHNlMFkwEwYHKoZIzj0C
AQYIKoZIzj0DAQcDQgAEYwLu++Zmx9EqunqHAURdz8US0sqDW43kYBEF0E8UGNm+
oJu9LQ0Zh/0Zv/4xqwsaJxmCbIsHhO1Iwuhay6JVDqMTMBEwDwYDVR0TAQH/BAUw
AwEB/zAKBggqhkjOPQQDAgNHADBEAiBjGGyyfPIU6J2EQ/oy7Prl5UXPdLdtBjEc
2prPS27OxwIgOIkq5qR7gsTSJCyRJdCqhvHfMN1PvJ9xYFkgU/2j0j0=
-----END CERTIFICATE-----
"""
