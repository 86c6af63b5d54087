#!/bin/sh
# Installs SupaClaw for your login alone, without root: the program below ~/.local/lib/supaclaw, one link in ~/.local/bin.
# Everything comes from PyPI and is checked by its hash: uv and SupaClaw by those below, the rest by those in SupaClaw.
# `supaclaw update` renews it. Remove it: rm -r ~/.local/lib/supaclaw ~/.local/bin/supaclaw (your data stays).
set -eu

supaclaw="supaclaw==@VERSION@ --hash=sha256:@SHA256@"
case $supaclaw in *@*) echo "this is the template; take install.sh from a release" >&2; exit 1 ;; esac
uv=uv==0.13.9
files=https://files.pythonhosted.org/packages
case "$(uname -s) $(uname -m)" in
  "Linux x86_64") sha256=d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19
    wheel=3d/aa/26d64642d808de4a652579ef950d7cd2d37f080a8babf9c67c6b75fc4c3f/uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl ;;
  "Linux aarch64") sha256=5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe
    wheel=57/15/94b6cd62ac3ff6550288328e8035288875197cbc183f51554b266a69877b/uv-0.13.9-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl ;;
  "Darwin arm64") sha256=66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63
    wheel=f3/a7/a8d7b074798c7fb3b26b37584b8fe2e29df2ccdc24ce7902caab2a53edbf/uv-0.13.9-py3-none-macosx_11_0_arm64.whl ;;
  *) echo "SupaClaw needs Linux (x86_64, aarch64) or a Mac with Apple silicon; use the container image" >&2; exit 1 ;;
esac

lib=$HOME/.local/lib/supaclaw bin=$HOME/.local/bin version=${supaclaw%% *} && version=${version#*==}
draft=$(mktemp -d) && trap 'rm -rf "$draft"' EXIT
mkdir -p "$lib" "$bin"

# uv: by the pip of a Python that is here, else as its wheel, which is a zip file. It brings a Python if none fits.
for python in python3.13 python3.14 python3.12 python3.11 python3; do
  "$python" -m venv "$draft/pip" 2>/dev/null && break
done
if [ -x "$draft/pip/bin/pip" ]; then
  echo "$uv --hash=sha256:$sha256" >"$draft/uv.txt"
  "$draft/pip/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: \
    --target "$draft/uv" --requirement "$draft/uv.txt"
else
  curl -fsSL "$files/$wheel" -o "$draft/uv.zip"
  echo "$sha256  $draft/uv.zip" | { sha256sum -c --quiet 2>/dev/null || shasum -a 256 -c --quiet; }
  unzip -q "$draft/uv.zip" -d "$draft/unzipped" && mv "$draft"/unzipped/*.data/scripts "$draft/bin"
  mkdir "$draft/uv" && mv "$draft/bin" "$draft/uv/bin" && chmod +x "$draft/uv/bin/uv"
fi
cp "$draft/uv/bin/uv" "$lib/uv.new" && mv "$lib/uv.new" "$lib/uv"

echo "Installing SupaClaw $version; the first time takes a minute …"
"$lib/uv" venv --quiet --clear --python '>=3.11,<3.15' "$lib/$version"
echo "$supaclaw" >"$draft/supaclaw.txt"
"$lib/uv" pip install --quiet --python "$lib/$version" --require-hashes --no-deps --requirement "$draft/supaclaw.txt"
"$lib/uv" pip install --quiet --python "$lib/$version" --require-hashes --only-binary :all: --compile-bytecode \
  --requirement "$(echo "$lib/$version"/lib/python3.*/site-packages/gateway/requirements.txt)"
"$lib/$version/bin/supaclaw" --version >/dev/null
ln -sfn "$lib/$version/bin/supaclaw" "$bin/supaclaw"

command -v supaclaw >/dev/null || echo "Add $bin to your PATH, or write $bin/supaclaw in place of supaclaw."
if [ -t 1 ] && [ -r /dev/tty ]; then "$bin/supaclaw" init </dev/tty; else echo "Next: supaclaw init, then supaclaw up"; fi
