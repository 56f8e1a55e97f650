package mock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"
)

// Files and batches are there for gateways that pass batches on. The mock runs a batch immediately and
// sells its lines at half price.

func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	file, head, err := r.FormFile("file")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return
	}
	answer(w, s.keep(head.Filename, text))
}

func (s *Server) keep(name string, text []byte) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprintf("file-%d", len(s.files)+1)
	s.files[id] = text
	return fileView(id, name, len(text))
}

func fileView(id, name string, size int) map[string]any {
	return map[string]any{
		"id": id, "object": "file", "bytes": size, "created_at": time.Now().Unix(), "filename": name, "purpose": "batch",
		"status": "processed",
	}
}

func (s *Server) text(r *http.Request) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.files[r.PathValue("id")]
	return text, ok
}

func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	text, ok := s.text(r)
	if !ok {
		http.NotFound(w, r)
		return
	}
	answer(w, fileView(r.PathValue("id"), "file.jsonl", len(text)))
}

func (s *Server) content(w http.ResponseWriter, r *http.Request) {
	text, ok := s.text(r)
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(text)
}

func (s *Server) createBatch(w http.ResponseWriter, r *http.Request) {
	var in struct {
		File     string `json:"input_file_id"`
		Endpoint string `json:"endpoint"`
		Window   string `json:"completion_window"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	text := s.files[in.File]
	s.mu.Unlock()
	var out bytes.Buffer
	lines := 0
	for line := range bytes.Lines(text) {
		lines++
		s.runLine(line, &out)
	}
	output := s.keep("output.jsonl", out.Bytes())
	s.mu.Lock()
	id := fmt.Sprintf("batch_%d", len(s.batch)+1)
	view := map[string]any{
		"id": id, "object": "batch", "endpoint": in.Endpoint, "input_file_id": in.File, "completion_window": in.Window,
		"status": "completed", "output_file_id": output["id"], "created_at": time.Now().Unix(),
		"request_counts": map[string]any{"total": lines, "completed": lines, "failed": 0},
	}
	s.batch[id] = view
	s.mu.Unlock()
	answer(w, view)
}

func (s *Server) runLine(line []byte, out *bytes.Buffer) {
	var in struct {
		ID   string          `json:"custom_id"`
		Body json.RawMessage `json:"body"`
	}
	if json.Unmarshal(line, &in) != nil {
		return
	}
	marker := marked.FindString(string(in.Body))
	q := &request{marker: marker, at: time.Now(), behaviour: s.enter(marker), path: "chat/completions"}
	defer s.leave()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/chat/completions", nil)
	if q.read(r, in.Body) != nil {
		return
	}
	recorder := httptest.NewRecorder()
	q.serve(recorder, r)
	s.record(Sale{Marker: marker, Model: q.model.Name, Nano: q.model.Cost(q.used) / 2, At: q.at, Usage: q.used})
	out.Write(encode(map[string]any{
		"id": "batch_req_1", "custom_id": in.ID,
		"response": map[string]any{"status_code": 200, "body": json.RawMessage(recorder.Body.Bytes())},
	}))
	out.WriteByte('\n')
}

func (s *Server) getBatch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	view, ok := s.batch[r.PathValue("id")]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	answer(w, view)
}
