# A formula for Homebrew. `make release` fills in the hash; a tap is a repository homebrew-NAME with this file in Formula/.
class Supaclaw < Formula
  desc "AI agent of your own, behind the messengers you already use"
  homepage "@REPOSITORY@"
  url "https://files.pythonhosted.org/packages/py3/s/supaclaw/supaclaw-@VERSION@-py3-none-any.whl"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "uv" => :build
  depends_on "python@3.13"

  def install
    wheel = buildpath/"supaclaw-#{version}-py3-none-any.whl"
    cp cached_download, wheel
    python = libexec/"bin/python"
    system "uv", "venv", "--python", Formula["python@3.13"].opt_bin/"python3.13", libexec
    system "uv", "pip", "install", "--python", python, "--no-deps", wheel
    locked = Dir[libexec/"lib/python3.*/site-packages/gateway/requirements.txt"].first
    system "uv", "pip", "install", "--python", python, "--require-hashes", "--only-binary", ":all:", "-r", locked
    bin.install_symlink libexec/"bin/supaclaw"
  end

  service do
    run [opt_bin/"supaclaw", "up"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/supaclaw --version")
  end
end
