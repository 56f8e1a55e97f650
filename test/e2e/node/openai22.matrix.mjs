import OpenAI from 'openai';
import { openaiMatrix } from './openai.matrix.mjs';

openaiMatrix(OpenAI);
