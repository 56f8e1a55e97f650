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
