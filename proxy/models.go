package proxy

import (
	"net/http"

	"github.com/llmguard/llmguard/guard"
)

// modelView is a model in OpenAI's form; when it was made we do not know.
type modelView struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func viewModel(m guard.Model) modelView {
	return modelView{ID: m.ID, Object: "model", OwnedBy: m.Provider}
}

// listModels lists what this key may call and we can price.
func (h *selfHandler) listModels(x *request, _ *http.Request, _ string) error {
	list := []modelView{}
	for _, m := range h.opts.Guard.Plans.Models(x.caller) {
		list = append(list, viewModel(m))
	}
	return x.json(http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (h *selfHandler) getModel(x *request, _ *http.Request, id string) error {
	m, err := h.opts.Guard.Plans.Model(x.caller, id)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, viewModel(m))
}
