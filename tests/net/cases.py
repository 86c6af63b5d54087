"""Addresses that must never be connected to, by the trick they play, and some that must work."""

PUBLIC = "93.184.216.34"
NAMES = {
    "public.test": [[PUBLIC]],
    "other.test": [["93.184.216.35"]],
    "xn--mnchen-3ya.test": [["93.184.216.36"]],
    "dual.test": [[PUBLIC, "2606:2800:220:1::1"]],
    "loop.test": [["127.0.0.1"]],
    "loop6.test": [["::1"]],
    "lan.test": [["10.1.2.3"]],
    "meta.test": [["169.254.169.254"]],
    "azure.test": [["168.63.129.16"]],
    "alibaba.test": [["100.100.100.200"]],
    "zero.test": [["0.0.0.0"]],
    "mapped.test": [["::ffff:10.0.0.1"]],
    "nat64.test": [["64:ff9b::a00:1"]],
    "sixtofour.test": [["2002:a00:1::"]],
    "teredo.test": [["2001:0:4136:e378:8000:63bf:3fff:fdd2"]],
    "ula.test": [["fd12:3456::1"]],
    "linklocal.test": [["fe80::1"]],
    "zone.test": [["fe80::1%lo"]],
    "multicast.test": [["239.1.2.3"]],
    "mixed.test": [[PUBLIC, "10.0.0.5"]],
    "mixed-last.test": [["192.168.7.7", PUBLIC]],
    "rebind.test": [[PUBLIC], ["127.0.0.1"]],
    "rebind-first.test": [["127.0.0.1"], [PUBLIC]],
    "localhost": [["127.0.0.1"]],
    "printer.local": [["192.168.1.9"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "postgres": [["172.18.0.2"]],
    "public.localhost": [["127.0.0.1"]],
}

BLOCKED = {
    "plain": """
        http://127.0.0.1/ http://127.8.9.10:8080/ http://10.0.0.1/ http://172.16.5.4/ http://172.31.255.255/
        http://192.168.0.1/ http://100.64.0.1/ http://100.127.255.254/ http://169.254.169.254/latest/meta-data/
        http://169.254.170.2/ http://100.100.100.200/ http://168.63.129.16/ http://192.0.0.192/ http://0.0.0.0/
        http://0.1.2.3/ http://198.18.0.1/ http://198.19.255.255/ http://192.0.2.1/ http://198.51.100.7/
        http://203.0.113.9/ http://192.88.99.1/ http://224.0.0.1/ http://240.0.0.1/ http://255.255.255.255/
    """,
    "numbers": """
        http://2130706433/ http://0x7f000001/ http://017700000001/ http://0177.0.0.1/ http://0x7f.1/ http://127.1/
        http://127.0.1/ http://0/ http://0x0/ http://127.0.0.01/ http://127.0.0.0x1/ http://127.0.0.257/
        http://4294967297/ http://00000177.0.0.1/ http://127.0.0.1.0x0/ http://1.1.1.1.1/ http://0x/ http://3232235777/
        http://0XC0.0xA8.0.1/ http://127.000.000.001/ http://public.test.0x7f/ http://127.0.0.1./ http://127.0.0.1../
    """,
    "version 6": """
        http://[::1]/ http://[::]/ http://[0:0:0:0:0:0:0:1]:80/ http://[::ffff:127.0.0.1]/ http://[::ffff:a9fe:a9fe]/
        http://[::127.0.0.1]/ http://[::7f00:1]/ http://[64:ff9b::127.0.0.1]/ http://[64:ff9b::a9fe:a9fe]/
        http://[64:ff9b:1::7f00:1]/ http://[2002:7f00:1::]/ http://[2002:c0a8:101::1]/ http://[2001:0:4136:e378::1]/
        http://[2001:10::1]/ http://[2001:20::1]/ http://[2001:db8::1]/ http://[3fff::1]/ http://[5f00::1]/
        http://[100::1]/ http://[fc00::1]/ http://[fd00:ec2::254]/ http://[fd20:ce::254]/ http://[fd12::1]:8123/
        http://[fe80::1]/ http://[fe80::1%25eth0]/ http://[fe80::1%eth0]/ http://[fec0::1]/ http://[ff02::1]/
        http://[ff0e::1]/ http://[fe80::5efe:127.0.0.1]/ http://[2a00:1450::5efe:7f00:1]/ http://[2a00:1450::200:5efe:a00:1]/
        http://[v1.fe80]/ http://[::1 http://[::1]x/ http://[]/ http://[::ffff:0:127.0.0.1]/
    """,
    "user names and parsers": """
        http://public.test@127.0.0.1/ http://public.test:80@127.0.0.1/ http://user:word@public.test/
        http://127.0.0.1%23@public.test/ http://127.0.0.1\\@public.test/ http://public.test\\@127.0.0.1/
        http:127.0.0.1/ http:/127.0.0.1/ http:///127.0.0.1/ //127.0.0.1/ 127.0.0.1 http://127.0.0.1:80:81/
        http://127.0.0.1:/ http://127.0.0.1:+80/ http://127.0.0.1:080/ http://127.0.0.1:99999/ http://127.0.0.1:8o/
        http://127.0.0.1;public.test/ http://127.0.0.1,public.test/ http://.public.test/ http://public..test/
        http://-public.test/ http://*.public.test/ http://127.0.0.1%00.public.test/ http://127.0.0.1%0d%0ahost:x/
        http://%31%32%37.0.0.1/ http://loc%61lhost/ http://?127.0.0.1 http://#127.0.0.1 http:// http://127.0.0.1|public.test/
    """,
    "letters": """
        http://①②⑦.⓪.⓪.①/ http://127。0。0。1/ http://127．0．0．1/ http://127｡0｡0｡1/ http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/ http://ｌｏｃａｌｈｏｓｔ/
        http://local\u200bhost/ http://local\u00adhost/ http://loc\u0430lhost/ http://[::①]/ http://ℓocalhost/ http://0x⑦f.1/
        http://127.0.0.1\u202e/ http://public\u2024test/
    """,
    "names": """
        http://localhost/ http://LOCALHOST:8080/ http://localhost./ http://public.localhost/ http://printer.local/
        http://metadata.google.internal/computeMetadata/v1/ http://postgres/ http://loop.test/ http://loop6.test/
        http://lan.test/ http://meta.test/ http://azure.test/ http://alibaba.test/ http://zero.test/ http://mapped.test/
        http://nat64.test/ http://sixtofour.test/ http://teredo.test/ http://ula.test/ http://linklocal.test/
        http://zone.test/ http://multicast.test/ http://mixed.test/ http://mixed-last.test/ http://rebind-first.test/
        http://LOOP.test./ https://loop.test/
    """,
    "schemes and ports": """
        file:///etc/passwd FILE:///etc/passwd gopher://127.0.0.1:6379/_INFO ftp://public.test/ javascript:alert(1)
        data:text/html,x jar:http://public.test!/ http+unix://%2Frun%2Fdocker.sock/ ws://public.test/ view-source:http://public.test/
        http://public.test:22/ http://public.test:25/ http://public.test:6379/ http://public.test:0/ http://public.test:5432/
    """,
}

REDIRECTED = """
    http://127.0.0.1/ http://169.254.169.254/latest/ http://[::1]/ http://2130706433/ http://loop.test/ //127.0.0.1/
    http:127.0.0.1 http:\\\\127.0.0.1/ \\\\127.0.0.1/ http://public.test@127.0.0.1/ http://①②⑦.0.0.1/ file:///etc/passwd
    gopher://127.0.0.1:6379/_x http://localhost/ http://[::ffff:127.0.0.1]/ http://mixed.test/ http://public.test:22/
    http://[::1 https://127.0.0.1/
"""

ALLOWED = """
    http://93.184.216.34/ http://public.test/ http://PUBLIC.test/ http://public.test./ http://public.test:8080/a?b=c#d
    http://dual.test/ http://xn--mnchen-3ya.test/ http://münchen.test/ http://MÜNCHEN.test/ http://public.test/path@127.0.0.1
    http://public.test/?u=http://127.0.0.1/ http://public.test/#@127.0.0.1 http://public.test?q=1 http://public.test/Käse%20x?ä=ö
    http://rebind.test/ http://[::ffff:93.184.216.34]/ http://public.test:8443/ http://public.test:3000/
"""
