package console

import (
	"net/http"
	"net/url"

	"github.com/llmguard/llmguard/internal/admin"
)

// brakes returns the brakes of an org that fired or were released.
func (v *visit) brakes(org string) []admin.FiredBrake {
	var list struct{ Data []admin.FiredBrake }
	q := url.Values{"org": {org}}
	if status, text := v.ask(v.r.Context(), http.MethodGet, "/brakes?"+q.Encode(), nil, &list); status != http.StatusOK {
		v.o.Log.Warn("console brake read failed", "org", org, "problem", problem(text, ""))
	}
	return list.Data
}

// releaseBrake lets the calls of a subject run again.
func (v *visit) releaseBrake() (done, error) {
	path := "/orgs/" + url.PathEscape(v.field("org")) + "/brakes/" + url.PathEscape(v.field("brake")) + "/release"
	body := v.order()
	body["subject"] = v.field("subject")
	if life := v.field("for"); life != "" {
		body["for"] = life
	}
	return done{Text: "Brake " + v.field("brake") + " is released for " + v.field("subject") + "."},
		v.change(http.MethodPost, path, body, nil)
}
