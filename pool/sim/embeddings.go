package sim

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"math"

	"github.com/valyala/fastjson"
)

// appendEmbeddings appends one vector for each input, of as many dimensions as
// asked for or 8, as numbers or base64 of little-endian float32. Equal texts
// have equal vectors.
func (a *answer) appendEmbeddings(dst []byte) []byte {
	input := a.ask.root.Get("input")
	inputs := []*fastjson.Value{input}
	if input.Type() == fastjson.TypeArray {
		if items := input.GetArray(); len(items) == 0 || items[0].Type() != fastjson.TypeNumber {
			inputs = items // else one text as token numbers
		}
	}
	dimensions := a.ask.root.GetInt("dimensions")
	if dimensions < 1 || dimensions > 1<<16 {
		dimensions = 8
	}
	coded := string(a.ask.root.GetStringBytes("encoding_format")) == "base64"
	dst = append(dst, `{"data":[`...)
	for i, v := range inputs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendVector(append(dst, `{"embedding":`...), v.MarshalTo(nil), dimensions, coded)
		dst = append(appendInt(dst, `,"index":`, i), `,"object":"embedding"}`...)
	}
	dst = appendQuoted(dst, `],"model":`, a.ask.model)
	dst = appendInt(dst, `,"object":"list","usage":{"prompt_tokens":`, a.ask.prompt)
	return append(appendInt(dst, `,"total_tokens":`, a.ask.prompt), "}}"...)
}

func appendVector(dst, text []byte, dimensions int, coded bool) []byte {
	hash := fnv.New32a()
	hash.Write(text)
	var raw []byte
	for i := range dimensions {
		hash.Write([]byte{byte(i)})
		x := float32(hash.Sum32())/(1<<31) - 1
		switch {
		case coded:
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		case i == 0:
			dst = appendFloat(dst, "[", float64(x))
		default:
			dst = appendFloat(dst, ",", float64(x))
		}
	}
	if coded {
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), raw), '"')
	}
	return append(dst, ']')
}
