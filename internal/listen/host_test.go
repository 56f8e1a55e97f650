package listen

import "testing"

// TestPrivateHost: names that a web page could have are distinguished from those that it cannot
// have.
func TestPrivateHost(t *testing.T) {
	for host, want := range map[string]bool{
		"": true, "localhost": true, "LOCALHOST:9090": true, "127.0.0.1:9090": true, "10.1.2.3": true, "[::1]:9090": true,
		"[fe80::1%eth0]": true, "proxy-1:9090": true, "worker": true, "llmguard-0.llmguard.default.svc": true,
		"a.svc.cluster.local:9090": true, "host.docker.internal": true, "admin.localhost": true,
		"evil.example": false, "evil.example:9090": false, "127.0.0.1.evil.example": false, "localhost.": true,
		"evil.example.": false, "svc.evil.com": false, "1.2.3.4.5": false, "xsvc.com": false,
	} {
		if got := PrivateHost(host); got != want {
			t.Errorf("%s: got %v, want %v", host, got, want)
		}
	}
}
