package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
)

// toolType is a row of the table of tools: who runs the calls of a type, and what they cost.
type toolType struct {
	// client reports whether the client runs the calls of a tool, so that they cost only tokens that
	// the request and its answers show. nil: the provider runs them.
	client func(*tool) bool
	fee    string // what the provider charges for its calls
}

func always(*tool) bool { return true }

// toolTypes are the types of tools of OpenAI's API. The provider runs all others, as far as we know.
var toolTypes = map[string]toolType{
	"function": {client: always}, "custom": {client: always}, "apply_patch": {client: always},
	"computer": {client: always}, "computer_use_preview": {client: always}, "local_shell": {client: always},
	"namespace": {client: always}, // each tool in it is read, too
	"shell":     {client: func(t *tool) bool { return t.place == "local" }, fee: "container sessions"},
	"tool_search": {
		client: func(t *tool) bool { return t.execution == "client" }, fee: "the tokens of tools that it finds",
	},

	"code_interpreter": {fee: "container sessions"},
	"file_search":      {fee: "searches and the tokens of what they find"},
	"image_generation": {fee: "the images"},
	"mcp":              {fee: "the tokens of what other servers answer"},

	"programmatic_tool_calling":     {fee: "the tokens of calls that it makes"},
	"web_search":                    {fee: searchFee},
	"web_search_2025_08_26":         {fee: searchFee},
	"web_search_preview":            {fee: searchFee},
	"web_search_preview_2025_03_11": {fee: searchFee},
}

const searchFee = "searches and the tokens of what they find"

// ToolFee returns what a provider charges for the calls of a tool that it runs.
func ToolFee(kind string) string { return cmp.Or(toolTypes[kind].fee, "its calls") }

// tool is what was read of the current tool.
type tool struct {
	kind, name string
	execution  string // of a tool_search
	place      string // the type of a shell's environment
	first      string // the first unknown member
	beside     string // the first unknown member that may enable another tool
	tools      bool   // it contains tools
	offered    bool   // it has external_web_access, which agents send
	ours       bool   // has a function or custom member
	uses       int64  // the most calls of it, -1 if not given; of a Messages request
	model      string // that it asks, of a Messages request
	limit      int64  // the tokens of output of that model, -1 if not given
	refs       [2]int // range in the request's Refs of those that its schema mentions
}

var responsesToolReaders = map[string]reader{
	"type":        readWord("tools[].type", func(s *scanner) *string { return &s.tool.kind }),
	"name":        readWord("tools[].name", func(s *scanner) *string { return &s.tool.name }),
	"execution":   readWord("tools[].execution", func(s *scanner) *string { return &s.tool.execution }),
	"environment": readEnvironment,
	"parameters":  readSchema,

	"external_web_access": func(s *scanner) error {
		s.tool.offered = true
		return readOtherOfTool(s, []byte("external_web_access"))
	},
}

var (
	responsesToolFields = newFields(responsesToolReaders, readOtherOfResponsesTool)
	innerToolFields     = newFields(responsesToolReaders, readOtherOfTool) // of a tool in another one
)

var environmentFields = newFields(map[string]reader{
	"type": readWord("tools[].environment.type", func(s *scanner) *string { return &s.tool.place }),
}, nil)

// readEnvironment reads where a shell runs. Other tools have the name of a system here.
func readEnvironment(s *scanner) error {
	if s.peek() == '{' {
		return s.members("tools[].environment", environmentFields)
	}
	return s.walk()
}

// readOtherOfResponsesTool reads the tools of a namespace. Some vendors accept them in any tool.
func readOtherOfResponsesTool(s *scanner, name []byte) error {
	if string(name) != "tools" || s.peek() != '[' {
		return readOtherOfTool(s, name)
	}
	outer := s.tool
	err := s.responsesTools("tools[].tools", 1, innerToolFields)
	s.tool = outer
	s.tool.tools = true
	return err
}

func readResponsesTools(s *scanner) error {
	start := s.pos
	err := s.responsesTools("tools", 0, responsesToolFields)
	s.req.Tools = Span{start, s.pos}
	return err
}

// readItemTools reads tools that an item of the input adds. They count as input, as unknown members do.
func readItemTools(s *scanner) error {
	start := s.pos
	if s.peek() != '[' {
		return readOther(s, []byte("tools"))
	}
	provider := len(s.req.BuiltinTools)
	own := len(s.req.ToolNames)
	err := s.responsesTools("input[].tools", 1, responsesToolFields)
	s.item.builtin = [2]int{provider, len(s.req.BuiltinTools)}
	s.req.ToolNames = s.req.ToolNames[:own]
	s.req.texts = append(s.req.texts, Text{KindOther, Span{start, s.pos}})
	return err
}

func (s *scanner) responsesTools(param string, level int, known *fields) error {
	return s.objects(param, level, func() error {
		s.tool = tool{}
		named, start := len(s.req.Refs), s.pos
		if err := s.members("tools[]", known); err != nil {
			return err
		}
		for i := named; i < len(s.req.Refs); i++ {
			s.req.Refs[i].Tool = true
		}
		t := &s.tool
		if t.kind == "code_interpreter" {
			noteContainer(s, s.buf[start:s.pos])
		}
		if client := toolTypes[t.kind].client; client == nil || !client(t) {
			t.noteProviders(s.req)
			if param == "tools" && t.offered && toolTypes[t.kind].fee == searchFee {
				s.req.offers = append(s.req.offers, Span{start, s.pos})
			}
			return nil
		}
		t.dropSchema(s.req)
		if t.tools && t.kind != "namespace" && t.beside == "" {
			t.beside = "tools"
		}
		t.noteOwn(s.req)
		return nil
	})
}

// noteContainer records the size of the container that the provider creates for a tool, if the tool
// specifies it. A tool that names an existing container does not.
func noteContainer(s *scanner, tool []byte) {
	var t struct {
		Container struct {
			MemoryLimit string `json:"memory_limit"`
		} `json:"container"`
	}
	if json.Unmarshal(tool, &t) == nil && t.Container.MemoryLimit != "" {
		s.req.ContainerMemory = clip([]byte(t.Container.MemoryLimit))
	}
}

// noteOwn records a tool that its caller runs, and what else it enables.
func (t *tool) noteOwn(r *Request) {
	r.ToolNames = append(r.ToolNames, t.name)
	if t.beside != "" {
		r.BuiltinTools = append(r.BuiltinTools, t.beside)
	}
}

// noteProviders records a tool that the provider runs.
func (t *tool) noteProviders(r *Request) {
	r.BuiltinTools = append(r.BuiltinTools, cmp.Or(t.kind, t.first, "unknown"))
}

// WithoutOffers returns the request without the web searches that an agent such as Codex offers its model
// in every call, beside tools of its own, and the edit that removes them. It returns nil if the request
// has none, if nothing would remain, or if the provider would still have to run a tool.
func (r *Request) WithoutOffers() (*Request, Edit) {
	choice := string(r.Raw(r.ToolChoice))
	if len(r.offers) == 0 || len(r.BuiltinTools) > len(r.offers) || len(r.ToolNames) == 0 ||
		choice != "" && choice != `"auto"` {
		return nil, Edit{}
	}
	kept := []byte{'['}
	at := r.Tools.Start + 1
	for _, offer := range append(slices.Clip(r.offers), Span{r.Tools.End - 1, 0}) {
		between := bytes.Trim(r.Body[at:offer.Start], " \t\r\n,")
		if len(kept) > 1 && len(between) > 0 {
			kept = append(kept, ',')
		}
		kept, at = append(kept, between...), offer.End
	}
	less := *r
	less.BuiltinTools = nil
	return &less, Edit{Name: "tools", JSON: append(kept, ']')}
}
