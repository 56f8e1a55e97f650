package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// apiPath is the prefix of the admin API.
const apiPath = "/admin/v1"

// ask calls the admin API in this process, as the signed-in administrator. A non-nil body is
// sent as JSON; a successful response is decoded into out, unless out is nil.
func (v *visit) ask(ctx context.Context, method, path string, body, out any) (int, []byte) {
	var text []byte
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		if err != nil {
			return http.StatusInternalServerError, nil
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, apiPath+path, bytes.NewReader(text))
	if err != nil {
		return http.StatusBadRequest, nil
	}
	r.Header.Set("Authorization", "Bearer "+v.session.key)
	r.RemoteAddr = v.r.RemoteAddr // the API rate-limits wrong keys by address
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	v.o.API.ServeHTTP(w, r)
	if out != nil && w.status < 300 {
		if err := json.Unmarshal(w.body.Bytes(), out); err != nil {
			return http.StatusInternalServerError, nil
		}
	}
	return w.status, w.body.Bytes()
}

// list returns a list of the API, and if it could not be read, why.
func list[T any](v *visit, path, otherwise string) ([]T, string) {
	var out struct{ Data []T }
	status, text := v.ask(v.r.Context(), http.MethodGet, path, nil, &out)
	if status == http.StatusOK {
		return out.Data, ""
	}
	why := problem(text, otherwise)
	v.o.Log.Warn("console list read failed", "path", path, "problem", why)
	return nil, why
}

// answer is a ResponseWriter that keeps the response.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
