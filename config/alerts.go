package config

import "strings"

// alerts checks who is told at a path.
func (d *document) alerts(path string, a Alerts, all Webhooks) {
	if !d.given(path) {
		return
	}
	if a.URL == "" {
		d.failAt(path, "url is missing: where alerts are posted")
		return
	}
	if text := a.URL.Reveal(); !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		d.failAt(path+".url", "expected a URL that begins with https://") // what stands there instead may be a secret
	} else {
		d.webhookURL(path+".url", text, all.AllowHTTP)
	}
	switch {
	case a.Format == "standard":
		d.signers(path+".secrets", a.Secrets)
	case len(a.Secrets) > 0:
		d.failAt(path+".secrets", "sign nothing in format slack; set format: standard, or leave them out")
	}
}
