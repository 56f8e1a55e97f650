import OpenAI from 'openai';
import { openaiMatrix } from '../node/openai.matrix.mjs';

openaiMatrix(OpenAI);
